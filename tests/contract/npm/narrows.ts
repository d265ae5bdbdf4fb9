// Compiles only if the generated types narrow: results of bulk requests by status, events and
// messages by type.
import type { components } from "./schema.js";

type Schemas = components["schemas"];

export function ids(answer: Schemas["BulkResults"] | Schemas["BulkChanged"]): string[] {
  return answer.results.map((r) => {
    if (r.status === 200 || r.status === 201) {
      return r.data.id;
    }
    const code: Schemas["ErrorCode"] = r.error.code;
    return code;
  });
}

export function told(e: Schemas["Event"] | Schemas["Message"]): string {
  switch (e.type) {
    case "link.created":
      return e.data.shortUrl;
    case "video.failed":
      return e.data.error?.code ?? "";
    case "sign_in_link.created":
      return e.data.memberId;
    case "webhook.test":
      return e.timestamp + e.data.url;
    default:
      return e.data.id;
  }
}

export const item: Schemas["BulkCreate"] = { urls: [{ url: "https://example.com/", tags: ["x"] }] };
// @ts-expect-error: an item has the fields of a link
export const wrong: Schemas["BulkCreate"] = { urls: ["https://example.com/"] };
