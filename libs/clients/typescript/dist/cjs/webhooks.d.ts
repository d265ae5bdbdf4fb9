/** Verifies messages of webhooks, using only WebCrypto. */
import { LinkreelError } from "./errors.js";
import type { components } from "./schema.js";
/** The headers of a request in the form that servers provide. Names may be in any case. */
export type WebhookHeaders = Headers | Iterable<readonly [string, string | readonly string[]]> | Record<string, string | readonly string[] | undefined>;
export interface WebhookOptions {
    /** The maximum difference to the message's time, 300 seconds by default. */
    toleranceSeconds?: number;
    /** The time to compare with, in milliseconds, for tests. */
    now?: number;
}
/** A message and the id of its event. Messages may arrive more than once: store the ids that you have processed. */
export type ReceivedMessage = components["schemas"]["Message"] & {
    id: string;
};
/** The reason why a message was rejected. */
export type WebhookReason = "missing_header" | "repeated_header" | "bad_timestamp" | "too_old" | "too_new" | "bad_signature" | "not_json";
/** The error for a message that must not be trusted. Respond with 401. */
export declare class WebhookError extends LinkreelError {
    readonly reason: WebhookReason;
    constructor(reason: WebhookReason, message: string);
}
/**
 * Returns the message of a request if it is recent and was signed with `secret` (`whsec_…`). Otherwise it throws a
 * `WebhookError` with the reason. During the rotation of a secret, pass the old and the new secret.
 * `body` is the unchanged body of the request, before any parsing.
 */
export declare function receiveWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options?: WebhookOptions): Promise<ReceivedMessage>;
/** Returns whether a message is recent and was signed with `secret`. `receiveWebhook` also returns the reason for a failure. */
export declare function verifyWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options?: WebhookOptions): Promise<boolean>;
