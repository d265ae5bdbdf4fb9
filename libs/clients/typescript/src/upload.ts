/** Sends files to storage: in parts that can be resumed if there is a session, otherwise in one request. */
import type { CallOptions } from "./client.js";
import { refusal } from "./client.js";
import { UploadError, UploadGoneError } from "./errors.js";

/** A file: from a page, from memory, by its path (Node, Deno and Bun), or a stream. */
export type UploadSource = Blob | ArrayBuffer | Uint8Array | string | URL | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/**
 * The upload addresses of a video, as returned by `createVideo` and `getVideo`. With only `uploadUrl`, the file is sent in
 * one request, for which a stream must be held in memory. A stream of more than 64 MiB causes an `UploadError`.
 */
export interface UploadTarget { uploadUrl?: string; resumableUploadUrl?: string }

/** Options of an upload. `timeout` is for one request: 600,000 ms by default, and longer above 37 MB. */
export interface UploadOptions extends CallOptions {
  /** Called when parts have arrived. `total` is undefined while the length of a stream is unknown. */
  onProgress?: (sent: number, total: number | undefined) => void;
  /** Bytes per part, rounded to a multiple of 256 KiB; 8 MiB by default. For a stream, one part and the following chunk are held in memory. */
  part?: number;
}

/** The functions of the client that an upload needs. */
export interface Wire {
  exchange<T>(url: string, init: RequestInit, options: CallOptions, read: (response: Response) => Promise<T>): Promise<T>;
  /** Waits before another attempt, or throws. */
  rest(error: unknown, attempt: number, options: CallOptions): Promise<void>;
  attempts: number;
}

interface Source {
  /** Unknown until a stream has ended. */
  size: number | undefined;
  type: string;
  /** The bytes from `at`, at most `n`; fewer only at the end. */
  read(at: number, n: number): Promise<Blob>;
  /** All bytes, without holding them in memory. */
  whole?(): Promise<Blob>;
  /** Throws if the file has changed since the start. */
  check?(): Promise<void>;
  close?(): Promise<void>;
}

const unit = 256 << 10;
// The maximum size of a stream that is held in memory for a request that cannot be resumed.
const mostHeld = 64 << 20;
// Minimum speed, in bytes a millisecond, for which the default timeout is sufficient.
const slowest = 64;

export async function upload(wire: Wire, target: UploadTarget, file: UploadSource, options: UploadOptions): Promise<void> {
  if (!target.resumableUploadUrl && !target.uploadUrl) throw new TypeError("The video accepts no upload now: it has no upload address.");
  const source = await open(file);
  try {
    if (target.resumableUploadUrl) await inParts(wire, target.resumableUploadUrl, source, options);
    else await whole(wire, target.uploadUrl ?? "", source, options);
  } finally {
    await source.close?.();
  }
}

async function whole(wire: Wire, url: string, source: Source, options: UploadOptions): Promise<void> {
  // A stream can be read only once, but the request may have to be sent twice.
  const body = await (source.whole?.() ?? source.read(0, source.size ?? mostHeld));
  if (source.size === undefined) throw new UploadError(`A stream of more than ${mostHeld >> 20} MiB needs resumableUploadUrl, which sends it in parts. Give the whole video, or a file in place of the stream.`);
  for (let attempt = 1; ; attempt++) {
    try {
      await put(wire, url, body, undefined, options);
      return options.onProgress?.(body.size, body.size);
    } catch (error) {
      await source.check?.();
      await wire.rest(error, attempt, options);
    }
  }
}

async function inParts(wire: Wire, session: string, source: Source, options: UploadOptions): Promise<void> {
  const part = Math.max(1, Math.round((options.part ?? 8 << 20) / unit)) * unit;
  let at: number | undefined; // undefined: ask how much has arrived
  for (let best = 0, failures = 0; ;) {
    const body = at === undefined ? new Blob() : await source.read(at, part);
    const total = source.size ?? "*";
    const range = at === undefined || body.size === 0 ? `bytes */${total}` : `bytes ${at}-${at + body.size - 1}/${total}`;
    let have: number | "all";
    try {
      have = await put(wire, session, body, range, options);
    } catch (error) {
      await wire.rest(error, ++failures, options);
      at = undefined;
      continue;
    }
    if (have === "all") return options.onProgress?.(source.size ?? at ?? 0, source.size);
    // Count failures since the last progress, because a long upload may fail many times.
    if (have > best) [best, failures] = [have, 0];
    else if (at !== undefined && ++failures >= (options.attempts ?? wire.attempts)) throw new UploadError("Storage accepts no more bytes.");
    at = have;
    options.onProgress?.(at, source.size);
  }
}

/** Returns how many bytes have arrived, or "all". Errors do not contain the address, which is a credential. */
async function put(wire: Wire, url: string, body: Blob, range: string | undefined, options: CallOptions): Promise<number | "all"> {
  const headers: Record<string, string> = range ? { "Content-Range": range } : {};
  const timeout = options.timeout ?? Math.max(600_000, body.size / slowest);
  // fetch treats a 308 without Location as a response, not as a redirect.
  return wire.exchange(url, { method: "PUT", headers, body }, { ...options, timeout }, async (response) => {
    if (response.status === 308) {
      await response.arrayBuffer();
      return Number(response.headers.get("Range")?.split("-")[1] ?? -1) + 1;
    }
    const error = response.ok ? undefined : await refusal(response);
    if (!error) await response.arrayBuffer();
    if (error && [400, 403, 404, 410, 499].includes(error.status)) throw new UploadGoneError(`Storage answered ${error.status}: the upload address is no longer valid. Get the video again for a new one.`, { cause: error });
    if (error) throw error;
    return "all";
  });
}

async function open(file: UploadSource): Promise<Source> {
  if (typeof file === "string" || file instanceof URL) return fromPath(file);
  if (file instanceof ArrayBuffer || file instanceof Uint8Array) file = new Blob([file as BlobPart]);
  if (file instanceof Blob) {
    const blob = file;
    return { size: blob.size, type: blob.type, read: async (at, n) => blob.slice(at, at + n, blob.type) };
  }
  if (typeof file === "object" && file !== null && ("getReader" in file || Symbol.asyncIterator in file)) return fromStream(file);
  throw new TypeError("The file must be a File, Blob, ArrayBuffer, Uint8Array, stream or path.");
}

async function fromPath(path: string | URL): Promise<Source> {
  const name = "node:fs"; // a variable, so that bundlers for browsers do not look for it
  const fs = await import(/* @vite-ignore */ /* webpackIgnore: true */ name) as {
    openAsBlob(path: string | URL): Promise<Blob>;
    promises: {
      open(path: string | URL): Promise<{
        stat(): Promise<{ size: number }>;
        read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
        close(): Promise<void>;
      }>;
    };
  };
  const handle = await fs.promises.open(path);
  const { size } = await handle.stat();
  return {
    size, type: "", close: () => handle.close(), whole: () => fs.openAsBlob(path),
    async check() {
      if ((await handle.stat()).size !== size) throw new UploadError("The file changed its length while it was uploaded.");
    },
    async read(at, n) {
      const buffer = new Uint8Array(Math.min(n, size - at));
      let have = 0;
      while (have < buffer.length) {
        const { bytesRead } = await handle.read(buffer, have, buffer.length - have, at + have);
        if (bytesRead === 0) throw new UploadError("The file became shorter while it was uploaded.");
        have += bytesRead;
      }
      return new Blob([buffer]);
    },
  };
}

/** Holds the bytes that were read but have not arrived yet. */
function fromStream(stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): Source {
  const chunks = "getReader" in stream ? fromReader(stream.getReader()) : stream[Symbol.asyncIterator]();
  const held: Uint8Array[] = [];
  let start = 0, size = 0; // of what is held
  const source: Source = {
    size: undefined, type: "",
    async read(at, n) {
      if (at < start) throw new UploadError("Storage lost bytes that had arrived, and a stream cannot be read again. Upload the file again.");
      for (;;) {
        for (let first = held[0]; first && start < at; first = held[0]) {
          const unneeded = Math.min(at - start, first.length);
          if (unneeded < first.length) held[0] = first.subarray(unneeded);
          else held.shift();
          [start, size] = [start + unneeded, size - unneeded];
        }
        if (source.size !== undefined || size > n) break;
        const next = await chunks.next();
        if (next.done) {
          source.size = start + size;
        } else {
          const piece = new Uint8Array(next.value); // a copy: its maker may use the memory again
          held.push(piece);
          size += piece.length;
        }
      }
      if (start < at) throw new UploadError(`The stream has ${source.size} bytes, and storage already has ${at}: it is another file.`);
      return new Blob(held as BlobPart[]).slice(0, n);
    },
    close: async () => { await chunks.return?.(); },
  };
  return source;
}

async function* fromReader(reader: ReadableStreamDefaultReader<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel();
  }
}
