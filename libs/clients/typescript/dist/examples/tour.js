/**
 * Demonstrates the client: links, bulk requests, a video, a webhook and the feed of events. It creates no record twice
 * and misses no event, even on an unreliable network. Run it with Node (`node tour.js`, or tour.ts from 22.18 on),
 * Deno (`deno run -A tour.ts`) or Bun (`bun tour.ts`):
 *
 *   LINKREEL_BASE_URL=http://localhost:8080 LINKREEL_API_KEY=lr_live_… node tour.js clip.mp4
 */
import { BulkError, Linkreel, NotFoundError, receiveWebhook } from "@linkreel/client";
/** The part that also works in a browser, which cannot receive a webhook. */
export async function tour(api, film, say, receiver) {
    // Create, search, edit, delete.
    const link = await api.createLink({ url: "https://example.com/spring", title: "Spring sale", tags: ["tour"] });
    await api.updateLink(link.id, { title: "Summer sale", expiresAt: new Date(Date.now() + 86_400_000) });
    const found = await api.links({ q: "summer", tag: "tour" }).toArray();
    say(`${found[0]?.shortUrl} is ${found[0]?.title}`);
    await api.deleteLink(link.id).catch((error) => {
        // If a kept connection breaks, a browser repeats the request and returns the second response.
        if (!(error instanceof NotFoundError))
            throw error;
    });
    // A thousand links. Ten of them are invalid.
    const items = Array.from({ length: 1000 }, (_, i) => ({ url: i % 100 === 99 ? "not a link" : `https://example.com/${i}`, externalId: `tour-${i}` }));
    const results = await api.createLinks(items).catch((error) => {
        if (!(error instanceof BulkError))
            throw error;
        return api.createLinks(items, { idempotencyKey: error.idempotencyKey }); // continues where it broke off
    });
    const made = results.flatMap((result) => result.status === 201 ? [result.data.id] : []);
    say(`${made.length} links, ${results.length - made.length} refused`);
    // A video.
    let progress = 0;
    const video = await api.uploadVideo(film, { title: "Tour" }, { part: 256 << 10, onProgress: (sent) => { progress = sent; }, timeout: 300_000 });
    say(`${video.shareUrl} plays ${video.duration} seconds`);
    // A webhook and the verification of its message.
    let message = "";
    if (receiver) {
        const webhook = await api.createWebhook({ url: receiver.url, events: ["video.deleted"] });
        await api.testWebhook(webhook.id);
        const { headers, body } = await receiver.next();
        message = (await receiveWebhook(webhook.secret, headers, body)).type;
        await api.deleteWebhook(webhook.id);
    }
    // The feed from its beginning, read by a program that stops after 500 events and later resumes with its cursor.
    const events = new Set();
    let cursor = "";
    for (const stop of [500, Infinity]) {
        const feed = api.followEvents({ after: cursor, type: ["link.created", "video.ready"] });
        for await (const event of feed) {
            if (event.type === "video.ready")
                break;
            events.add(event.object); // a set: what was not finished comes again
            if (events.size >= stop)
                break;
        }
        cursor = feed.cursor ?? "";
    }
    say(`${events.size} links in the feed`);
    return { made: [link.id, ...made], refused: results.length - made.length, video: video.id, progress, message, events: [...events] };
}
/** Receives the requests of a webhook. */
async function listen() {
    const { createServer } = await import("node:http");
    let received;
    const first = new Promise((done) => { received = done; });
    const server = createServer((request, response) => {
        let body = "";
        request.setEncoding("utf8").on("data", (text) => { (body += text).length > 1 << 20 && request.destroy(); }).on("end", () => {
            response.writeHead(204).end();
            received({ headers: request.headers, body });
        });
    });
    await new Promise((up) => { server.listen(0, "127.0.0.1", up); });
    const { port } = server.address();
    return { url: `http://127.0.0.1:${port}/hooks`, next: () => first, close: () => { server.close(); } };
}
if (typeof document === "undefined") {
    const { argv, env } = await import("node:process");
    const receiver = await listen();
    const api = new Linkreel({ baseUrl: env["LINKREEL_BASE_URL"] ?? "http://localhost:8080", key: env["LINKREEL_API_KEY"] ?? "" });
    console.log(JSON.stringify(await tour(api, argv[2] ?? "clip.mp4", console.error, receiver)));
    receiver.close();
}
