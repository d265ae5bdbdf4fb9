/** The API refused a call. Decide by `code`. */
export class ApiError extends Error {
    status;
    body;
    retryAfter;
    constructor(status, body, retryAfter) {
        super(`${body.message ?? `status ${status}`} (${body.code ?? `HTTP_${status}`})`);
        this.status = status;
        this.body = body;
        this.retryAfter = retryAfter;
        this.name = "ApiError";
    }
    get code() { return this.body.code ?? `HTTP_${this.status}`; }
    get requestId() { return this.body.requestId ?? ""; }
    get details() { return this.body.details ?? []; }
}
/** A video that could not be prepared. */
export class VideoFailed extends Error {
    video;
    constructor(video) {
        super(`${video.error?.message ?? "The video failed."} (${video.error?.code ?? "INTERNAL"})`);
        this.video = video;
        this.name = "VideoFailed";
    }
    get code() { return this.video.error?.code ?? "INTERNAL"; }
}
/** Storage does not know the upload address any more: get the video again. */
export class UploadGone extends Error {
}
const pause = (ms, signal) => new Promise((done, fail) => {
    const stop = () => { clearTimeout(timer); fail(signal?.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); done(); }, ms);
    signal?.addEventListener("abort", stop, { once: true });
});
const id = encodeURIComponent;
export class Linkreel {
    #o;
    constructor(options) {
        if (!/^https?:\/\/[^/]/.test(options.baseUrl))
            throw new TypeError(`baseUrl ${options.baseUrl} is no http or https address`);
        this.#o = { attempts: 5, timeout: 30_000, maxWait: 60_000, fetch: (...a) => fetch(...a), sleep: pause, ...options, baseUrl: options.baseUrl.replace(/\/+$/, "") };
    }
    // Links
    createLink(link, o) { return this.#call("POST", "/api/v1/links", { body: link }, o); }
    getLink(linkId, o) { return this.#call("GET", `/api/v1/links/${id(linkId)}`, {}, o); }
    /** What is absent stays, `null` clears. */
    updateLink(linkId, update, o) { return this.#call("PATCH", `/api/v1/links/${id(linkId)}`, { body: update }, o); }
    deleteLink(linkId, o) { return this.#call("DELETE", `/api/v1/links/${id(linkId)}`, {}, o); }
    linkStats(linkId, days = {}, o) { return this.#call("GET", `/api/v1/links/${id(linkId)}/stats`, { query: days }, o); }
    /** Says what a link would decide about a visit. Nothing is counted. */
    explainLink(linkId, visit = {}, o) { return this.#call("GET", `/api/v1/links/${id(linkId)}/explain`, { query: visit }, o); }
    /** Says whether a create could take a slug now. Nothing is reserved. */
    slugAvailable(slug, domainId, o) { return this.#call("GET", "/api/v1/links/available", { query: { slug, domainId } }, o); }
    listLinks(page = {}, o) { return this.#call("GET", "/api/v1/links", { query: page }, o); }
    /** All links that fit the filter, newest first; pages are read as you go. */
    async *links(o, filter = {}) {
        for (let cursor = null;;) {
            const page = await this.listLinks({ ...filter, limit: 100, cursor }, o);
            yield* page.data;
            if (!page.hasMore || page.nextCursor === null)
                return;
            cursor = page.nextCursor;
        }
    }
    /** Any number of links, 100 to a request; one result per item, in order. */
    async bulkCreate(items, o = {}) {
        const key = o.idempotencyKey ?? crypto.randomUUID();
        const results = [];
        for (let i = 0; i < items.length; i += 100) {
            const answer = await this.#call("POST", "/api/v1/links/bulk", { body: { urls: items.slice(i, i + 100) } }, { ...o, idempotencyKey: `${key}-${i}` });
            results.push(...answer.results);
        }
        return results;
    }
    /** Changes up to 100 links at once; one result per id, in order. */
    async bulkChange(ids, set, o) { return (await this.#call("PATCH", "/api/v1/links/bulk", { body: { ids, set } }, o)).results; }
    async bulkDelete(ids, o) { return (await this.#call("POST", "/api/v1/links/bulk-delete", { body: { ids } }, o)).results; }
    // Domains
    createDomain(hostname, o) { return this.#call("POST", "/api/v1/domains", { body: { hostname } }, o); }
    async domains(o) { return (await this.#call("GET", "/api/v1/domains", {}, o)).data; }
    getDomain(domainId, o) { return this.#call("GET", `/api/v1/domains/${id(domainId)}`, {}, o); }
    verifyDomain(domainId, o) { return this.#call("POST", `/api/v1/domains/${id(domainId)}/verify`, {}, o); }
    domainStats(domainId, days = {}, o) { return this.#call("GET", `/api/v1/domains/${id(domainId)}/stats`, { query: days }, o); }
    updateDomain(domainId, change, o) { return this.#call("PATCH", `/api/v1/domains/${id(domainId)}`, { body: change }, o); }
    deleteDomain(domainId, o) { return this.#call("DELETE", `/api/v1/domains/${id(domainId)}`, {}, o); }
    // Videos
    createVideo(video = {}, o) { return this.#call("POST", "/api/v1/videos", { body: video }, o); }
    getVideo(videoId, o) { return this.#call("GET", `/api/v1/videos/${id(videoId)}`, {}, o); }
    async videos(limit, o, filter = {}) { return (await this.#call("GET", "/api/v1/videos", { query: { ...filter, limit } }, o)).data; }
    videoAccess(videoId, o) { return this.#call("GET", `/api/v1/videos/${id(videoId)}/access`, {}, o); }
    /** Replaces who may see a video; a password that is left out stays. */
    setVideoAccess(videoId, access, o) { return this.#call("PUT", `/api/v1/videos/${id(videoId)}/access`, { body: access }, o); }
    /** Takes the picture at a second of the video; null goes back to the service's choice. */
    setThumbnail(videoId, time, o) { return this.#call("PUT", `/api/v1/videos/${id(videoId)}/thumbnail`, { body: { time } }, o); }
    async captions(videoId, o) { return (await this.#call("GET", `/api/v1/videos/${id(videoId)}/captions`, {}, o)).data; }
    deleteCaptions(videoId, language, o) { return this.#call("DELETE", `/api/v1/videos/${id(videoId)}/captions/${id(language)}`, {}, o); }
    updateVideo(videoId, update, o) { return this.#call("PATCH", `/api/v1/videos/${id(videoId)}`, { body: update }, o); }
    deleteVideo(videoId, o) { return this.#call("DELETE", `/api/v1/videos/${id(videoId)}`, {}, o); }
    putCaptions(videoId, language, vtt, o) {
        return this.#call("PUT", `/api/v1/videos/${id(videoId)}/captions/${id(language)}`, { raw: vtt, type: "text/vtt" }, o);
    }
    /** Makes a video, sends the file, waits until it plays. */
    async uploadVideo(file, video = {}, o = {}) {
        const made = await this.createVideo(video, o);
        await this.upload(made, file, o);
        return this.waitUntilReady(made.videoId, o);
    }
    /**
     * Sends a file to a video's address: in parts that survive a broken connection
     * where there is a `resumableUploadUrl`, else whole.
     */
    async upload(video, file, o = {}) {
        const session = video.resumableUploadUrl;
        if (!session) {
            if (!video.uploadUrl)
                throw new TypeError("the video takes no upload now");
            const address = video.uploadUrl;
            await this.#again(() => this.#put(address, file, undefined, o.signal), o.signal);
            o.onProgress?.(file.size, file.size);
            return;
        }
        const part = o.part ?? 8 << 20;
        let at; // undefined: ask how far it got
        for (let best = 0, failures = 0;;) {
            let have;
            try {
                const end = Math.min((at ?? 0) + part, file.size);
                have = at === undefined || end === at
                    ? await this.#put(session, undefined, `bytes */${file.size}`, o.signal)
                    : await this.#put(session, file.slice(at, end, file.type), `bytes ${at}-${end - 1}/${file.size}`, o.signal);
            }
            catch (error) {
                await this.#wait(error, ++failures, o.signal);
                at = undefined;
                continue;
            }
            if (have === "all") {
                o.onProgress?.(file.size, file.size);
                return;
            }
            if (have > best)
                [best, failures] = [have, 0];
            else if (at !== undefined)
                failures++;
            if (failures >= this.#o.attempts)
                throw new Error("storage takes no more bytes");
            at = have;
            o.onProgress?.(at, file.size);
        }
    }
    /** Asks until the video plays; throws VideoFailed when it cannot. */
    async waitUntilReady(videoId, o = {}) {
        for (let wait = 1000;; wait = Math.min(wait * 1.25, 5000)) {
            const video = await this.getVideo(videoId, o);
            o.onStatus?.(video);
            if (video.status === "ready")
                return video;
            if (video.status === "failed")
                throw new VideoFailed(video);
            await this.#o.sleep(wait, o.signal);
        }
    }
    // Account
    account(o) { return this.#call("GET", "/api/v1/account", {}, o); }
    updateAccount(change, o) { return this.#call("PATCH", "/api/v1/account", { body: change }, o); }
    async keys(o) { return (await this.#call("GET", "/api/v1/keys", {}, o)).data; }
    createKey(key, o) { return this.#call("POST", "/api/v1/keys", { body: key }, o); }
    rollKey(keyId, overlapSeconds = 0, o) { return this.#call("POST", `/api/v1/keys/${id(keyId)}/roll`, { body: { overlapSeconds } }, o); }
    revokeKey(keyId, o) { return this.#call("DELETE", `/api/v1/keys/${id(keyId)}`, {}, o); }
    // The wire
    async #call(method, path, request, o = {}) {
        // fetch itself resolves these: DELETE …/captions/.. would delete the video.
        const dots = decodeURIComponent(path).split(/[/\\]/).find((segment) => segment === "." || segment === "..");
        if (dots)
            throw new TypeError(`"${dots}" cannot be part of a path: it is resolved to another path. Check the id.`);
        const query = new URLSearchParams();
        for (const [k, v] of Object.entries(request.query ?? {}))
            for (const e of Array.isArray(v) ? v : [v])
                if (e !== undefined && e !== null)
                    query.append(k, String(e));
        const headers = { Authorization: `Bearer ${this.#o.key}`, Accept: "application/json" };
        const body = request.raw ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
        if (body !== undefined)
            headers["Content-Type"] = request.type ?? "application/json";
        if (method === "POST")
            headers["Idempotency-Key"] = o.idempotencyKey ?? crypto.randomUUID();
        let tries = 0;
        return this.#again(async () => {
            tries++;
            const answer = await this.#send(this.#o.baseUrl + path + (query.size ? `?${query}` : ""), { method, headers, body }, o.signal, this.#o.timeout);
            const text = await answer.text();
            if (answer.ok)
                return (text ? JSON.parse(text) : undefined);
            // The attempt whose answer was lost has deleted it.
            if (method === "DELETE" && tries > 1 && answer.status === 404)
                return undefined;
            throw refusal(answer, text);
        }, o.signal);
    }
    /** What arrived so far, or "all". */
    async #put(address, body, range, signal) {
        const headers = range ? { "Content-Range": range } : {};
        // A 308 without Location is an answer and no redirect, to fetch as well.
        const answer = await this.#send(address, { method: "PUT", headers, body: body ?? "" }, signal, 600_000);
        const text = await answer.text();
        if (answer.status === 308)
            return Number(answer.headers.get("Range")?.split("-")[1] ?? -1) + 1;
        if (answer.ok)
            return "all";
        if ([400, 403, 404, 410].includes(answer.status))
            throw new UploadGone(`storage answered ${answer.status}`);
        throw refusal(answer, text);
    }
    async #send(address, init, signal, timeout) {
        const limit = AbortSignal.timeout(timeout);
        try {
            return await this.#o.fetch(address, { ...init, signal: signal ? AbortSignal.any([signal, limit]) : limit });
        }
        catch (error) {
            if (signal?.aborted)
                throw error;
            throw new Lost(`${init.method} ${new URL(address).pathname}: no answer`, { cause: error });
        }
    }
    async #again(once, signal) {
        for (let failures = 0;;) {
            try {
                return await once();
            }
            catch (error) {
                await this.#wait(error, ++failures, signal);
            }
        }
    }
    /** Waits before another attempt, or throws the error when there is none. */
    async #wait(error, failures, signal) {
        const again = error instanceof Lost || (error instanceof ApiError && (error.status === 429 || error.status >= 500 || error.code === "IDEMPOTENCY_IN_PROGRESS"));
        const asked = error instanceof ApiError ? (error.retryAfter ?? 0) : 0;
        if (!again || failures >= this.#o.attempts || asked > this.#o.maxWait)
            throw error;
        const backoff = Math.min(200 * 2 ** (failures - 1), 10_000) * (0.5 + Math.random() / 2);
        await this.#o.sleep(Math.max(asked, backoff), signal);
    }
}
/** An attempt without an answer. */
class Lost extends Error {
}
function refusal(answer, text) {
    let body = {};
    try {
        body = JSON.parse(text).error ?? {};
    }
    catch { /* not ours: a proxy on the way */ }
    const after = answer.headers.get("Retry-After");
    return new ApiError(answer.status, body, after && /^\d+$/.test(after) ? Number(after) * 1000 : undefined);
}
/**
 * Whether a message came from the deployment that gave you `secret` (`whsec_…`), and lately. `body` is the request's
 * body to the last byte: read it before anything parses it.
 */
export async function verifyWebhook(secret, headers, body, options = {}) {
    const get = (name) => {
        const value = headers instanceof Headers ? headers.get(name) : headers[name];
        return (Array.isArray(value) ? value.join(" ") : value) ?? "";
    };
    const id = get("webhook-id"), stamp = get("webhook-timestamp");
    const age = (options.now ?? Date.now()) / 1000 - Number(stamp);
    if (!id || !/^\d+$/.test(stamp) || Math.abs(age) > (options.toleranceSeconds ?? 300))
        return false;
    const raw = typeof body === "string" ? new TextEncoder().encode(body) : body;
    const head = new TextEncoder().encode(`${id}.${stamp}.`);
    const signed = new Uint8Array(head.length + raw.length);
    signed.set(head);
    signed.set(raw, head.length);
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    try {
        const key = await crypto.subtle.importKey("raw", bytes(secret.replace(/^whsec_/, "")), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
        for (const part of get("webhook-signature").split(" ")) {
            // verify compares in constant time.
            if (part.startsWith("v1,") && (await crypto.subtle.verify("HMAC", key, bytes(part.slice(3)), signed)))
                return true;
        }
    }
    catch {
        return false; // a secret or a signature that is no base64
    }
    return false;
}
