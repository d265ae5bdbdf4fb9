/**
 * Client of the Linkreel API for browsers, Node, Deno and Bun. Nothing but `fetch` and WebCrypto is needed.
 *
 * Each operation of the API is a method of its name, made from the API's document. A `list…` reads one page;
 * its plural, such as `links()`, is the whole list. Calls are retried when that helps, as long as the service
 * asks in Retry-After. Each POST carries an Idempotency-Key, so a retry never acts twice.
 */
import type { CallOptions, ChangeOptions, CreateOptions } from "./client.js";
import { ApiError, BulkError, ConnectionError, TimeoutError, UploadGoneError, VideoFailedError } from "./errors.js";
import { encode, mayHaveActed } from "./client.js";
import { Operations } from "./operations.js";
import type { BulkAllCreated, BulkChanged, BulkResults, BulkUpdate, Event, LinkCreate, Video, VideoCreate, VideoCreated } from "./operations.js";
import type { Query } from "./types.js";
import { upload } from "./upload.js";
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

// The limits of a bulk request: items, and bytes with room for what surrounds them.
const bulkItems = 100, bulkBytes = (1 << 20) - 4096;

/** Calls the API for one account. */
export class Linkreel extends Operations {
  /** Makes any number of links; one result per item, in order. Throws a `BulkError` that keeps what was done. */
  createLinks(items: LinkCreate[], options: CreateOptions = {}): Promise<BulkResult[]> {
    return this.#bulk(items, options, async (urls, o) => (await this.bulkCreateLinks({ urls }, o)).results);
  }

  /** Changes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
  async updateLinks(ids: string[], set: BulkSet, options: CallOptions = {}): Promise<BulkChange[]> {
    encode({ body: set }); // a wrong argument is told before anything is sent
    return this.#bulk(ids, options, async (some, { idempotencyKey: _, ...o }) => (await this.bulkUpdateLinks({ ids: some, set }, o)).results);
  }

  /** Deletes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
  deleteLinks(ids: string[], options: CreateOptions = {}): Promise<BulkChange[]> {
    return this.#bulk(ids, options, async (some, o) => (await this.bulkDeleteLinks({ ids: some }, o)).results);
  }

  async #bulk<Item, Result>(items: Item[], options: CreateOptions, send: (part: Item[], options: CreateOptions) => Promise<Result[]>): Promise<Result[]> {
    const key = options.idempotencyKey ?? crypto.randomUUID();
    const results: Result[] = [], sizes = items.map((body) => new TextEncoder().encode(encode({ body }).body as string | undefined).length);
    for (let at = 0; at < items.length;) {
      const part = items.slice(at, partEnd(sizes, at));
      try {
        results.push(...await send(part, { ...options, idempotencyKey: at === 0 ? key : `${key}-${at}` }));
      } catch (error) {
        const unsure = mayHaveActed(error) ? part : [];
        throw new BulkError(results, unsure, items.slice(at + unsure.length), key, error);
      }
      at += part.length;
    }
    return results;
  }

  /** Makes a video, sends the file and waits until it plays. */
  async uploadVideo(file: UploadSource, video: VideoCreate = {}, options: UploadVideoOptions = {}): Promise<Video> {
    const { onCreated, onStatus, onProgress, part, timeout, ...call } = options;
    const made = await this.createVideo(video, call);
    onCreated?.(made);
    await this.upload(made, file, { ...call, onProgress, part });
    return this.waitUntilReady(made.videoId, { ...call, onStatus, timeout });
  }

  /**
   * Sends a file to a video's address. The first request asks how much has arrived, so an upload that broke off, in
   * this program or an earlier one, resumes. Throws an `UploadGoneError` when the address has ended.
   */
  upload(video: UploadTarget, file: UploadSource, options: UploadOptions = {}): Promise<void> {
    return upload({
      exchange: (...a) => this.exchange(...a), rest: (...a) => this.rest(...a), attempts: this.attempts,
    }, video, file, options);
  }

  /**
   * Waits until a video plays, at most `timeout` milliseconds in all (an hour by default). Throws a
   * `VideoFailedError` when it cannot be prepared. With scope `events:read` it holds a request instead of polling.
   */
  async waitUntilReady(videoId: string, { timeout = 3_600_000, onStatus, ...options }: WaitOptions = {}): Promise<Video> {
    const end = Date.now() + timeout;
    let after = await this.#cursor({ object: videoId, limit: 1 }, options);
    for (let wait = 1000, known = false; ; wait = Math.min(wait * 1.25, 5000)) {
      try {
        const video = await this.getVideo(videoId, options);
        known = true;
        onStatus?.(video);
        if (video.status === "ready") return video;
        if (video.status === "failed") throw new VideoFailedError(video);
      } catch (error) {
        if (!known || !isOutage(error)) throw error;
      }
      const left = end - Date.now();
      if (left <= 0) throw new TimeoutError(`The video ${videoId} is not ready after ${timeout} ms.`);
      // A short hold, so that onStatus also gets the progress, which is no event.
      if (after !== undefined) after = await this.#cursor({ object: videoId, after, wait: Math.min(5, Math.ceil(left / 1000)) }, options);
      else await this.sleep(Math.min(wait, left), options.signal);
    }
  }

  /** Where to wait for the next event of a record; undefined if it has none or the feed cannot be read. */
  async #cursor(query: Query<"listEvents">, options: CallOptions): Promise<string | undefined> {
    try {
      const page = await this.listEvents(query, options);
      return query.after === undefined ? page.data[0]?.id : page.nextCursor ?? query.after;
    } catch (error) {
      if (error instanceof ApiError || isOutage(error)) return undefined;
      throw error;
    }
  }

  /**
   * Follows the feed: `for await (const event of api.followEvents({ after }))` waits for each new event, oldest
   * first, and survives restarts of the service. `after` is a cursor or the id of an event, "" the beginning of the
   * feed; without it only new events come. `cursor` of the feed is where to resume.
   */
  followEvents(query: Omit<Query<"listEvents">, "cursor"> = {}, options: CallOptions = {}): EventFeed {
    const { after: from, wait: held = 25, ...filter } = query;
    return new EventFeed(
      (after) => {
        // What happens during the first request, or when its answer is lost, would be missed if it were held.
        const wait = after === undefined ? 0 : held;
        return this.listEvents({ wait, after, ...filter }, options);
      },
      (ms) => this.sleep(ms, options.signal), from);
  }
}

/** The events of an account as they happen. */
export class EventFeed implements AsyncIterable<Event> {
  /** Where to resume after the last event that was handled; undefined before the first answer. */
  cursor: string | undefined;
  readonly #read: (after: string | undefined) => Promise<{ data: Event[]; nextCursor?: string | null }>;
  readonly #sleep: (ms: number) => Promise<void>;

  constructor(read: (after: string | undefined) => Promise<{ data: Event[]; nextCursor?: string | null }>, sleep: (ms: number) => Promise<void>, after?: string) {
    [this.#read, this.#sleep, this.cursor] = [read, sleep, after];
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined> {
    for (let known = false; ;) {
      let page;
      try {
        page = await this.#read(this.cursor);
      } catch (error) {
        // A wrong address shows at the first request; after that an outage is waited for.
        if (!known || !isOutage(error)) throw error;
        await this.#sleep(5000 * (1 + Math.random()));
        continue;
      }
      known = true;
      for (const event of page.data) {
        yield event;
        // Only now: a loop that ends in the middle of an event gets it again.
        this.cursor = event.id;
      }
      this.cursor = page.nextCursor ?? this.cursor;
      // A server that is stopping does not hold the request. Its callers should not all come back at once.
      if (page.data.length === 0) await this.#sleep(Math.random() * 1000);
    }
  }
}

/** Whether the service may only be away: a long wait outlasts that. */
function isOutage(error: unknown): boolean {
  return error instanceof ConnectionError || error instanceof ApiError && (error.status >= 500 || error.status === 429);
}

/** Where the items that fit into one request with the one at `at` end, by their sizes in bytes. */
function partEnd(sizes: number[], at: number): number {
  let bytes = 0, end = at;
  for (; end < sizes.length && end - at < bulkItems; end++) {
    bytes += (sizes[end] ?? 0) + 1;
    if (bytes > bulkBytes && end > at) break;
  }
  return end;
}
