/**
 * Client of the Linkreel API for browsers, Node, Deno and Bun. Nothing but `fetch` and WebCrypto is needed.
 *
 * Each operation of the API is a method of its name, made from the API's document. A `list…` reads one page;
 * its plural, such as `links()`, is the whole list. Calls are retried when that helps, as long as the service
 * asks in Retry-After. Each POST carries an Idempotency-Key, so a retry never acts twice.
 */
import type { CallOptions, CreateOptions } from "./client.js";
import { Operations } from "./operations.js";
import type { BulkAllCreated, BulkChanged, BulkResults, BulkUpdate, Event, LinkCreate, Video, VideoCreate, VideoCreated } from "./operations.js";
import type { Query } from "./types.js";
import type { UploadOptions, UploadSource, UploadTarget } from "./upload.js";
export { Client, Pages } from "./client.js";
export type { CallOptions, ChangeOptions, ClientOptions, CreateOptions, ReadOptions, Request, ResponseInfo } from "./client.js";
export * from "./errors.js";
export * from "./operations.js";
export { version } from "./version.js";
export type { components, operations, paths } from "./schema.js";
export type { Input, Page, Query } from "./types.js";
export type { UploadOptions, UploadSource, UploadTarget } from "./upload.js";
export { receiveWebhook, verifyWebhook, WebhookError } from "./webhooks.js";
export type { ReceivedMessage, WebhookHeaders, WebhookOptions, WebhookReason } from "./webhooks.js";
/** What became of an item of a bulk create. `status` says which: 201, or that of the error. */
export type BulkResult = BulkAllCreated["results"][number] | BulkResults["results"][number];
/** What became of a link of a bulk change or delete. */
export type BulkChange = BulkChanged["results"][number];
/** What a bulk change sets. `tags` replaces all tags and goes without `addTags` and `removeTags`. */
export type BulkSet = BulkUpdate["set"];
/** Options of an upload that makes the video, too. */
export interface UploadVideoOptions extends UploadOptions, WaitOptions {
    /** Called once the video exists: keep its id to resume after the program ends. */
    onCreated?: (video: VideoCreated) => void;
}
export interface WaitOptions extends CallOptions {
    /** Called with the video each time that it was read. */
    onStatus?: (video: Video) => void;
}
/** Calls the API for one account. */
export declare class Linkreel extends Operations {
    #private;
    /** Makes any number of links; one result per item, in order. Throws a `BulkError` that keeps what was done. */
    createLinks(items: LinkCreate[], options?: CreateOptions): Promise<BulkResult[]>;
    /** Changes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
    updateLinks(ids: string[], set: BulkSet, options?: CallOptions): Promise<BulkChange[]>;
    /** Deletes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
    deleteLinks(ids: string[], options?: CreateOptions): Promise<BulkChange[]>;
    /** Makes a video, sends the file and waits until it plays. */
    uploadVideo(file: UploadSource, video?: VideoCreate, options?: UploadVideoOptions): Promise<Video>;
    /**
     * Sends a file to a video's address. The first request asks how much has arrived, so an upload that broke off, in
     * this program or an earlier one, resumes. Throws an `UploadGoneError` when the address has ended.
     */
    upload(video: UploadTarget, file: UploadSource, options?: UploadOptions): Promise<void>;
    /**
     * Waits until a video plays, at most `timeout` milliseconds in all (an hour by default). Throws a
     * `VideoFailedError` when it cannot be prepared. With scope `events:read` it holds a request instead of polling.
     */
    waitUntilReady(videoId: string, { timeout, onStatus, ...options }?: WaitOptions): Promise<Video>;
    /**
     * Follows the feed: `for await (const event of api.followEvents({ after }))` waits for each new event, oldest
     * first, and survives restarts of the service. `after` is a cursor or the id of an event, "" the beginning of the
     * feed; without it only new events come. `cursor` of the feed is where to resume.
     */
    followEvents(query?: Omit<Query<"listEvents">, "cursor">, options?: CallOptions): EventFeed;
}
/** The events of an account as they happen. */
export declare class EventFeed implements AsyncIterable<Event> {
    #private;
    /** Where to resume after the last event that was handled; undefined before the first answer. */
    cursor: string | undefined;
    constructor(read: (after: string | undefined) => Promise<{
        data: Event[];
        nextCursor?: string | null;
    }>, sleep: (ms: number) => Promise<void>, after?: string);
    [Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined>;
}
