/** Verifies the messages of webhooks, with WebCrypto alone. */
import { LinkreelError } from "./errors.js";
import type { components } from "./schema.js";
/** The headers of a request as servers have them; names count in any case. */
export type WebhookHeaders = Headers | Iterable<readonly [string, string | readonly string[]]> | Record<string, string | readonly string[] | undefined>;
export interface WebhookOptions {
    /** How old or new a message may be, 300 seconds by default. */
    toleranceSeconds?: number;
    /** The time to compare with, in milliseconds; tests put theirs here. */
    now?: number;
}
/** A message, and the id of its event. Messages may come more than once: remember the ids that you have handled. */
export type ReceivedMessage = components["schemas"]["Message"] & {
    id: string;
};
/** Why a message was refused. */
export type WebhookReason = "missing_header" | "repeated_header" | "bad_timestamp" | "too_old" | "too_new" | "bad_signature" | "not_json";
/** A message that is not to be trusted. Answer it with 401. */
export declare class WebhookError extends LinkreelError {
    readonly reason: WebhookReason;
    constructor(reason: WebhookReason, message: string);
}
/**
 * Returns the message of a request if it came from the deployment that gave you `secret` (`whsec_…`), and lately;
 * otherwise throws a `WebhookError` that says why. While a secret is rolled, pass the old and the new one.
 * `body` is the request's body to the last byte: read it before anything parses it.
 */
export declare function receiveWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options?: WebhookOptions): Promise<ReceivedMessage>;
/** Whether a message came from the deployment that gave you `secret`, and lately. `receiveWebhook` also says why not. */
export declare function verifyWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options?: WebhookOptions): Promise<boolean>;
