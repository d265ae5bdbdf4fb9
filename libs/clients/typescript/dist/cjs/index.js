"use strict";
var __createBinding = (this && this.__createBinding) || (Object.create ? (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    var desc = Object.getOwnPropertyDescriptor(m, k);
    if (!desc || ("get" in desc ? !m.__esModule : desc.writable || desc.configurable)) {
      desc = { enumerable: true, get: function() { return m[k]; } };
    }
    Object.defineProperty(o, k2, desc);
}) : (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    o[k2] = m[k];
}));
var __exportStar = (this && this.__exportStar) || function(m, exports) {
    for (var p in m) if (p !== "default" && !Object.prototype.hasOwnProperty.call(exports, p)) __createBinding(exports, m, p);
};
Object.defineProperty(exports, "__esModule", { value: true });
exports.EventFeed = exports.Linkreel = exports.WebhookError = exports.verifyWebhook = exports.receiveWebhook = exports.version = exports.Pages = exports.Client = void 0;
const errors_js_1 = require("./errors.js");
const client_js_1 = require("./client.js");
const operations_js_1 = require("./operations.js");
const upload_js_1 = require("./upload.js");
var client_js_2 = require("./client.js");
Object.defineProperty(exports, "Client", { enumerable: true, get: function () { return client_js_2.Client; } });
Object.defineProperty(exports, "Pages", { enumerable: true, get: function () { return client_js_2.Pages; } });
__exportStar(require("./errors.js"), exports);
__exportStar(require("./operations.js"), exports);
var version_js_1 = require("./version.js");
Object.defineProperty(exports, "version", { enumerable: true, get: function () { return version_js_1.version; } });
var webhooks_js_1 = require("./webhooks.js");
Object.defineProperty(exports, "receiveWebhook", { enumerable: true, get: function () { return webhooks_js_1.receiveWebhook; } });
Object.defineProperty(exports, "verifyWebhook", { enumerable: true, get: function () { return webhooks_js_1.verifyWebhook; } });
Object.defineProperty(exports, "WebhookError", { enumerable: true, get: function () { return webhooks_js_1.WebhookError; } });
// The limits of a bulk request: items, and bytes with room for what surrounds them.
const bulkItems = 100, bulkBytes = (1 << 20) - 4096;
/** Calls the API for one account. */
class Linkreel extends operations_js_1.Operations {
    /** Makes any number of links; one result per item, in order. Throws a `BulkError` that keeps what was done. */
    createLinks(items, options = {}) {
        return this.#bulk(items, options, async (urls, o) => (await this.bulkCreateLinks({ urls }, o)).results);
    }
    /** Changes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
    async updateLinks(ids, set, options = {}) {
        (0, client_js_1.encode)({ body: set }); // a wrong argument is told before anything is sent
        return this.#bulk(ids, options, async (some, { idempotencyKey: _, ...o }) => (await this.bulkUpdateLinks({ ids: some, set }, o)).results);
    }
    /** Deletes any number of links; one result per id, in order. Throws a `BulkError` that keeps what was done. */
    deleteLinks(ids, options = {}) {
        return this.#bulk(ids, options, async (some, o) => (await this.bulkDeleteLinks({ ids: some }, o)).results);
    }
    async #bulk(items, options, send) {
        const key = options.idempotencyKey ?? crypto.randomUUID();
        const results = [], sizes = items.map((body) => new TextEncoder().encode((0, client_js_1.encode)({ body }).body).length);
        for (let at = 0; at < items.length;) {
            const part = items.slice(at, partEnd(sizes, at));
            try {
                results.push(...await send(part, { ...options, idempotencyKey: at === 0 ? key : `${key}-${at}` }));
            }
            catch (error) {
                const unsure = (0, client_js_1.mayHaveActed)(error) ? part : [];
                throw new errors_js_1.BulkError(results, unsure, items.slice(at + unsure.length), key, error);
            }
            at += part.length;
        }
        return results;
    }
    /** Makes a video, sends the file and waits until it plays. */
    async uploadVideo(file, video = {}, options = {}) {
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
    upload(video, file, options = {}) {
        return (0, upload_js_1.upload)({
            exchange: (...a) => this.exchange(...a), rest: (...a) => this.rest(...a), attempts: this.attempts,
        }, video, file, options);
    }
    /**
     * Waits until a video plays, at most `timeout` milliseconds in all (an hour by default). Throws a
     * `VideoFailedError` when it cannot be prepared. With scope `events:read` it holds a request instead of polling.
     */
    async waitUntilReady(videoId, { timeout = 3_600_000, onStatus, ...options } = {}) {
        const end = Date.now() + timeout;
        let after = await this.#cursor({ object: videoId, limit: 1 }, options);
        for (let wait = 1000, known = false;; wait = Math.min(wait * 1.25, 5000)) {
            try {
                const video = await this.getVideo(videoId, options);
                known = true;
                onStatus?.(video);
                if (video.status === "ready")
                    return video;
                if (video.status === "failed")
                    throw new errors_js_1.VideoFailedError(video);
            }
            catch (error) {
                if (!known || !isOutage(error))
                    throw error;
            }
            const left = end - Date.now();
            if (left <= 0)
                throw new errors_js_1.TimeoutError(`The video ${videoId} is not ready after ${timeout} ms.`);
            // A short hold, so that onStatus also gets the progress, which is no event.
            if (after !== undefined)
                after = await this.#cursor({ object: videoId, after, wait: Math.min(5, Math.ceil(left / 1000)) }, options);
            else
                await this.sleep(Math.min(wait, left), options.signal);
        }
    }
    /** Where to wait for the next event of a record; undefined if it has none or the feed cannot be read. */
    async #cursor(query, options) {
        try {
            const page = await this.listEvents(query, options);
            return query.after === undefined ? page.data[0]?.id : page.nextCursor ?? query.after;
        }
        catch (error) {
            if (error instanceof errors_js_1.ApiError || isOutage(error))
                return undefined;
            throw error;
        }
    }
    /**
     * Follows the feed: `for await (const event of api.followEvents({ after }))` waits for each new event, oldest
     * first, and survives restarts of the service. `after` is a cursor or the id of an event, "" the beginning of the
     * feed; without it only new events come. `cursor` of the feed is where to resume.
     */
    followEvents(query = {}, options = {}) {
        const { after: from, wait: held = 25, ...filter } = query;
        return new EventFeed((after) => {
            // What happens during the first request, or when its answer is lost, would be missed if it were held.
            const wait = after === undefined ? 0 : held;
            return this.listEvents({ wait, after, ...filter }, options);
        }, (ms) => this.sleep(ms, options.signal), from);
    }
}
exports.Linkreel = Linkreel;
/** The events of an account as they happen. */
class EventFeed {
    /** Where to resume after the last event that was handled; undefined before the first answer. */
    cursor;
    #read;
    #sleep;
    constructor(read, sleep, after) {
        [this.#read, this.#sleep, this.cursor] = [read, sleep, after];
    }
    async *[Symbol.asyncIterator]() {
        for (let known = false;;) {
            let page;
            try {
                page = await this.#read(this.cursor);
            }
            catch (error) {
                // A wrong address shows at the first request; after that an outage is waited for.
                if (!known || !isOutage(error))
                    throw error;
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
            if (page.data.length === 0)
                await this.#sleep(Math.random() * 1000);
        }
    }
}
exports.EventFeed = EventFeed;
/** Whether the service may only be away: a long wait outlasts that. */
function isOutage(error) {
    return error instanceof errors_js_1.ConnectionError || error instanceof errors_js_1.ApiError && (error.status >= 500 || error.status === 429);
}
/** Where the items that fit into one request with the one at `at` end, by their sizes in bytes. */
function partEnd(sizes, at) {
    let bytes = 0, end = at;
    for (; end < sizes.length && end - at < bulkItems; end++) {
        bytes += (sizes[end] ?? 0) + 1;
        if (bytes > bulkBytes && end > at)
            break;
    }
    return end;
}
