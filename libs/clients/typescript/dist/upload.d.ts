/** Sends files to storage: in parts that can be resumed if there is a session, otherwise in one request. */
import type { CallOptions } from "./client.js";
/** A file: from a page, from memory, by its path (Node, Deno and Bun), or a stream. */
export type UploadSource = Blob | ArrayBuffer | Uint8Array | string | URL | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
/**
 * The upload addresses of a video, as returned by `createVideo` and `getVideo`. With only `uploadUrl`, the file is sent in
 * one request, for which a stream must be held in memory. A stream of more than 64 MiB causes an `UploadError`.
 */
export interface UploadTarget {
    uploadUrl?: string;
    resumableUploadUrl?: string;
}
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
export declare function upload(wire: Wire, target: UploadTarget, file: UploadSource, options: UploadOptions): Promise<void>;
