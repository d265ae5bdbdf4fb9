// Splits a recorder's output into parts for a resumable upload. The size of each part except
// the last is a multiple of 256 KiB. A recording of a still screen takes a long time to fill
// a part, so a part that is due gets padding that players skip: a Void element in WebM, a
// free box in MP4. Padding is allowed only between elements, so the framer parses the stream.

const unit = 256 << 10;
const longest = 16; // bytes of an element's header

export class Framer {
  private bytes = new Uint8Array(0); // not yet returned
  private scan = 0; // start of the next element; may be after the end
  private after = false; // padding is allowed at scan
  private safe = 0; // the last received position at which padding is allowed
  private clean = false; // padding is allowed at the start of bytes, but not at the start of the file
  constructor(private readonly mp4: boolean) {}

  add(more: Uint8Array) {
    const all = new Uint8Array(this.bytes.length + more.length);
    all.set(this.bytes);
    all.set(more, this.bytes.length);
    this.bytes = all;
    while (this.step());
  }

  /** Returns the whole units received so far, if any. */
  full(): Uint8Array | undefined {
    // An incomplete header of an element is parsed later, so it must not be split.
    const head = this.bytes.length - this.scan;
    const most = head > 0 && head < longest ? this.scan : this.bytes.length;
    const n = most - (most % unit);
    return n ? this.cut(n, n === this.safe) : undefined;
  }

  /** Returns all bytes up to the last complete element, padded to whole units. They may be only padding. */
  filled(): Uint8Array | undefined {
    if (!this.safe && !this.clean) return undefined; // in the middle of a large element
    const content = this.cut(this.safe, true);
    const least = this.mp4 ? 8 : 9;
    let gap = unit - (content.length % unit);
    if (gap < least) gap += unit;
    const part = new Uint8Array(content.length + gap);
    part.set(content);
    const view = new DataView(part.buffer, content.length);
    if (this.mp4) {
      view.setUint32(0, gap);
      view.setUint32(4, 0x66726565); // free
    } else {
      view.setUint8(0, 0xec); // Void
      view.setUint32(1, 0x01000000); // a size of eight bytes
      view.setUint32(5, gap - 9);
    }
    return part;
  }

  /** Returns the remaining bytes without padding. */
  rest(): Uint8Array {
    return this.cut(this.bytes.length, true);
  }

  private cut(n: number, clean: boolean) {
    const part = this.bytes.slice(0, n);
    this.bytes = this.bytes.slice(n);
    this.scan -= n;
    this.safe = Math.max(0, this.safe - n);
    if (n) this.clean = clean;
    return part;
  }

  // Records that the element before scan has ended, and skips the next element if its header
// is complete.
  private step(): boolean {
    if (this.scan < 0 || this.scan > this.bytes.length) return false;
    if (this.after) this.safe = this.scan;
    const end = this.mp4 ? this.box(this.scan) : this.element(this.scan);
    if (end === undefined) return false;
    this.scan = end.to;
    this.after = end.safe;
    return true;
  }

  private box(at: number) {
    if (at + 16 > this.bytes.length) return undefined;
    const view = new DataView(this.bytes.buffer, at);
    let size = view.getUint32(0);
    if (size === 1) size = Number(view.getBigUint64(8));
    if (size < 8) return undefined; // it extends to the end of the file, so no element can follow
    const type = view.getUint32(4);
    return { to: at + size, safe: type === 0x6d646174 || type === 0x6d6f6f76 }; // mdat, moov
  }

  private element(at: number) {
    const id = this.number(at, true);
    const size = id && this.number(at + id.length, false);
    if (!id || !size) return undefined;
    const body = at + id.length + size.length;
    // Descend into a segment and a live cluster. Skip every other element.
    if (id.value === 0x18538067 || (id.value === 0x1f43b675 && size.unknown)) return { to: body, safe: false };
    if (size.unknown) return undefined;
    return { to: body + size.value, safe: id.value !== 0xe7 && id.value !== 0x1a45dfa3 }; // neither before the time of a cluster nor before the segment
  }

  // Parses an EBML number. An id keeps its marker.
  private number(at: number, marked: boolean) {
    const first = this.bytes[at];
    if (first === undefined || !first) return undefined;
    const length = Math.clz32(first) - 23;
    if (at + length > this.bytes.length) return undefined;
    let value = marked ? first : first & (0xff >> length);
    let unknown = value === 0xff >> length;
    for (let i = 1; i < length; i++) {
      value = value * 256 + this.bytes[at + i]!;
      unknown &&= this.bytes[at + i] === 0xff;
    }
    return { value, length, unknown };
  }
}
