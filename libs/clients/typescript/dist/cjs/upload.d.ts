/** Sends files to storage: in parts that survive a broken connection where there is a session, else whole. */
import type { CallOptions } from "./client.js";
/** A file: from a page, from memory, by its path (Node, Deno and Bun), or as it is being made. */
export type UploadSource = Blob | ArrayBuffer | Uint8Array | string | URL | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
/**
 * Where a file goes. What `createVideo` and `getVideo` return has both addresses. With `uploadUrl` alone a file goes in one
 * request, for which a stream has to be held in memory: one of more than 64 MiB is an `UploadError`.
 */
export interface UploadTarget {
    uploadUrl?: string;
    resumableUploadUrl?: string;
}
/** Options of an upload. `timeout` is for one request: by default 600,000 ms, and more for more than 37 MB. */
export interface UploadOptions extends CallOptions {
    /** Called as parts arrive. `total` is undefined while the length of a stream is unknown. */
    onProgress?: (sent: number, total: number | undefined) => void;
    /** Bytes per part, rounded to a multiple of 256 KiB; 8 MiB by default. A stream is held in memory for one part and the piece that follows. */
    part?: number;
}
/** What an upload needs of the client. */
export interface Wire {
    exchange<T>(url: string, init: RequestInit, options: CallOptions, read: (response: Response) => Promise<T>): Promise<T>;
    /** Waits before another attempt, or throws. */
    rest(error: unknown, attempt: number, options: CallOptions): Promise<void>;
    attempts: number;
}
export declare function upload(wire: Wire, target: UploadTarget, file: UploadSource, options: UploadOptions): Promise<void>;
