// What must compile, and what must not. `npm test` checks it; nothing here runs.
import { ApiError, BulkError, Linkreel, Operator, receiveWebhook, verifyWebhook } from "@linkreel/client";
import type { BulkResult, ErrorCode, Event, Link, LinkCreate, LinkSummary, ResponseInfo } from "@linkreel/client";

const api = new Linkreel({ baseUrl: "https://linkreel.example", key: "lr_live_…" });
// @ts-expect-error a variable of the environment may be missing
new Linkreel({ baseUrl: "https://linkreel.example", key: undefined as string | undefined });
// @ts-expect-error there is no such option
new Linkreel({ baseUrl: "https://linkreel.example", key: "k", retries: 3 });

export async function links(signal: AbortSignal): Promise<void> {
  const made = await api.createLink({ url: "https://example.com", expiresAt: new Date(), tags: ["a"], rules: [{ name: "phones", when: { device: ["phone"] }, url: "https://example.com/app" }] }, { signal, idempotencyKey: "k" });
  const id: string = made.id;
  await api.updateLink(id, { title: null, expiresAt: 1_790_000_000_000, startsAt: "2026-12-01T00:00:00Z" }, { ifMatch: '"1"', timeout: 1000, attempts: 2, headers: { a: "b" }, onResponse: (r: ResponseInfo) => r.etag?.length });
  // @ts-expect-error url is required
  await api.createLink({ title: "x" });
  // @ts-expect-error there is no such field
  await api.createLink({ url: "https://example.com", destinationUrl: "https://example.com" });
  // @ts-expect-error only the service sets clicks
  await api.updateLink(id, { clicks: 5 });
  // @ts-expect-error a slug cannot be changed
  await api.updateLink(id, { slug: "new" });
  // @ts-expect-error a create does not take ifMatch
  await api.createLink({ url: "https://example.com" }, { ifMatch: '"1"' });
  // @ts-expect-error a GET takes no idempotency key
  await api.getLink(id, { idempotencyKey: "k" });
  // @ts-expect-error there is no such parameter
  await api.listLinks({ tags: "a" });
  // @ts-expect-error a slug is required
  await api.checkSlug({});
  for await (const link of api.links({ q: "sale", tag: "one" })) {
    const summary: LinkSummary = link;
    const clicks: number = summary.clicks;
    void clicks;
  }
  const all: LinkSummary[] = await api.links({ tag: ["one", "two"] }, { signal }).toArray(10);
  const whole: Link = await api.getLink(all[0]?._id ?? "");
  await api.updateLink(id, { ...whole, title: "as it was read" });
  await api.explainLink(id, { at: new Date(), percent: 0 });
  const page = await api.listVideos();
  const cursor: string | null = page.nextCursor;
  void cursor;
}

export async function bulk(items: LinkCreate[]): Promise<string[]> {
  try {
    const results: BulkResult[] = await api.createLinks(items);
    await api.updateLinks(["lnk_1"], { addTags: ["a"], expiresAt: new Date() });
    // @ts-expect-error there is no such field
    await api.updateLinks(["lnk_1"], { archive: true });
    return results.map((r) => r.status === 201 ? r.data.id : r.error.code);
  } catch (error) {
    if (error instanceof BulkError) return (error as BulkError<BulkResult, LinkCreate>).unsent.map((item) => item.url);
    throw error;
  }
}

export function told(error: unknown): ErrorCode | undefined {
  if (!(error instanceof ApiError)) return undefined;
  if (error.code === "SLUG_TAKEN" || error.code === "HTTP_502") return "SLUG_TAKEN";
  // @ts-expect-error there is no such code
  if (error.code === "SLUG_TAKNE") return undefined;
  const field: string | undefined = error.details[0]?.field;
  void field;
  // @ts-expect-error the rule is not any text
  return error.details[0]?.code === "to_long" ? undefined : error.body.code;
}

export async function videos(file: File, stream: ReadableStream<Uint8Array>, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const made = await api.createVideo({ title: "x", privacy: "unlisted" });
  for (const source of [file, stream, chunks, "clip.mp4", new URL("file:///clip.mp4"), new Uint8Array(1), new ArrayBuffer(1)]) await api.upload(made, source, { onProgress: (sent: number, total) => sent / (total ?? 1) });
  // @ts-expect-error a number is no file
  await api.upload(made, 42);
  // @ts-expect-error there is no such privacy
  await api.createVideo({ privacy: "secret" });
  const video = await api.waitUntilReady(made.videoId, { timeout: 60_000, onStatus: (v) => v.progress });
  const status: "uploading" | "processing" | "ready" | "failed" | "expired" = video.status as never;
  void status;
}

export async function events(): Promise<void> {
  const feed = api.followEvents({ after: "", type: ["link.created"] });
  for await (const event of feed) {
    const one: Event = event;
    const resume: string | undefined = feed.cursor;
    void [one, resume];
    if (event.type === "link.created") event.data.slug.trim();
    // @ts-expect-error the event may be of a key
    event.data.slug.trim();
  }
  // @ts-expect-error there is no such type of event
  api.followEvents({ type: "link.made" });
}

export async function webhooks(request: Request, headers: Record<string, string | string[] | undefined>): Promise<string> {
  if (!await verifyWebhook("whsec_…", request.headers, await request.text())) return "";
  await verifyWebhook(["old", "new"], headers, new Uint8Array(1));
  await verifyWebhook("whsec_…", new Map([["Webhook-Id", "x"]]), "");
  const message = await receiveWebhook("whsec_…", request.headers, await request.text());
  // @ts-expect-error a body is not what a parser made of it
  await verifyWebhook("whsec_…", headers, { type: "link.created" });
  if (message.type === "video.ready") return message.data.shareUrl;
  // @ts-expect-error the message may be of a link
  message.data.shareUrl.trim();
  return message.id;
}

export async function other(): Promise<void> {
  const made = await api.request<{ id: string }>("POST", "/api/v1/new", { body: {} }, { timeout: 1 });
  void made.id;
  const operator = new Operator({ baseUrl: "http://localhost:8082", key: "token" });
  await operator.adminUpdateAccount("acc_1", { plan: "business" });
  // @ts-expect-error the operator's calls are not the account's
  await api.adminListAccounts();
  // @ts-expect-error there is no such call
  await api.createLinkk({ url: "" });
}
