// What a recorder produces, cut into parts that a resumable upload takes: each but
// the last is a multiple of 256 KiB. A quiet picture fills that slowly, so a part
// that is due is filled up with what players skip: a Void element in WebM, a free
// box in MP4. Both may stand only between elements, which is why the stream is read.

const unit = 256 << 10;
const longest = 16; // bytes of an element's head

export class Framer {
  private bytes = new Uint8Array(0); // not cut off yet
  private scan = 0; // where the next element begins; may lie behind the end
  private after = false; // filling may stand there
  private safe = 0; // the last place that has come where filling may stand
  private clean = false; // the start of bytes is such a place; the start of the file is none
  constructor(private readonly mp4: boolean) {}

  add(more: Uint8Array) {
    const all = new Uint8Array(this.bytes.length + more.length);
    all.set(this.bytes);
    all.set(more, this.bytes.length);
    this.bytes = all;
    while (this.step());
  }

  /** What is full already. */
  full(): Uint8Array | undefined {
    // A head that has not come whole is read later, so it stays in one piece.
    const head = this.bytes.length - this.scan;
    const most = head > 0 && head < longest ? this.scan : this.bytes.length;
    const n = most - (most % unit);
    return n ? this.cut(n, n === this.safe) : undefined;
  }

  /** All up to the last element, filled up; at least a part of filling. */
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

  /** The end, as it is. */
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

  // Notes that the element before scan has ended, and goes over the next one if its
  // head is there.
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
    if (size < 8) return undefined; // to the end of the file: nothing can follow
    const type = view.getUint32(4);
    return { to: at + size, safe: type === 0x6d646174 || type === 0x6d6f6f76 }; // mdat, moov
  }

  private element(at: number) {
    const id = this.number(at, true);
    const size = id && this.number(at + id.length, false);
    if (!id || !size) return undefined;
    const body = at + id.length + size.length;
    // Into a segment and a live cluster, over everything else.
    if (id.value === 0x18538067 || (id.value === 0x1f43b675 && size.unknown)) return { to: body, safe: false };
    if (size.unknown) return undefined;
    return { to: body + size.value, safe: id.value !== 0xe7 && id.value !== 0x1a45dfa3 }; // not before a cluster's time, nor before the segment
  }

  // An EBML number; an id keeps its marker.
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
