import { Client } from "./client.js";
import type { CallOptions, ChangeOptions, CreateOptions, Pages, ReadOptions } from "./client.js";
import type { components } from "./schema.js";
import type { ExportLine, Input, Query } from "./types.js";
type Schemas = components["schemas"];
export type Plan = Schemas["Plan"];
export type Scope = Schemas["Scope"];
export type Timestamp = Schemas["Timestamp"];
export type NextCursor = Schemas["NextCursor"];
export type MomentOrNull = Schemas["MomentOrNull"];
export type Instant = Schemas["Instant"];
export type InstantOrNull = Schemas["InstantOrNull"];
export type LinkCreate = Input<Schemas["LinkCreate"]>;
export type LinkRule = Schemas["LinkRule"];
export type LinkRuleWhen = Schemas["LinkRuleWhen"];
export type LinkUpdate = Input<Schemas["LinkUpdate"]>;
export type LinkSummary = Schemas["LinkSummary"];
export type LinkStatus = Schemas["LinkStatus"];
export type LinkList = Schemas["LinkList"];
export type LinkCreated = Schemas["LinkCreated"];
export type ImportedClicks = Schemas["ImportedClicks"];
export type Link = Schemas["Link"];
export type LinkExplained = Schemas["LinkExplained"];
export type SlugAvailable = Schemas["SlugAvailable"];
export type LinkUpdated = Schemas["LinkUpdated"];
export type IgnoredFields = Schemas["IgnoredFields"];
export type DomainStats = Schemas["DomainStats"];
export type DomainDay = Schemas["DomainDay"];
export type LinkStats = Schemas["LinkStats"];
export type BulkCreate = Input<Schemas["BulkCreate"]>;
export type BulkItem = Schemas["BulkItem"];
export type BulkUpdate = Input<Schemas["BulkUpdate"]>;
export type BulkDelete = Input<Schemas["BulkDelete"]>;
export type BulkIds = Schemas["BulkIds"];
export type BulkChanged = Schemas["BulkChanged"];
export type BulkChangeDone = Schemas["BulkChangeDone"];
export type BulkChangeFailed = Schemas["BulkChangeFailed"];
export type BulkLink = Schemas["BulkLink"];
export type BulkItemStatus = Schemas["BulkItemStatus"];
export type BulkItemError = Schemas["BulkItemError"];
export type TagList = Schemas["TagList"];
export type BulkAllCreated = Schemas["BulkAllCreated"];
export type BulkResults = Schemas["BulkResults"];
export type BulkItemCreated = Schemas["BulkItemCreated"];
export type BulkItemFailed = Schemas["BulkItemFailed"];
export type DomainCreate = Input<Schemas["DomainCreate"]>;
export type Domain = Schemas["Domain"];
export type DomainUpdate = Input<Schemas["DomainUpdate"]>;
export type DomainCertificate = Schemas["DomainCertificate"];
export type DomainList = Schemas["DomainList"];
export type Privacy = Schemas["Privacy"];
export type VideoStatus = Schemas["VideoStatus"];
export type VideoCreate = Input<Schemas["VideoCreate"]>;
export type PrivacyInput = Schemas["PrivacyInput"];
export type VideoUpdate = Input<Schemas["VideoUpdate"]>;
export type TagsInput = Schemas["TagsInput"];
export type ExternalIdInput = Schemas["ExternalIdInput"];
export type VideoAccessUpdate = Input<Schemas["VideoAccessUpdate"]>;
export type VideoAccess = Schemas["VideoAccess"];
export type VideoThumbnail = Input<Schemas["VideoThumbnail"]>;
export type CaptionList = Schemas["CaptionList"];
export type VideoUpdated = Schemas["VideoUpdated"];
export type VideoSummary = Schemas["VideoSummary"];
export type VideoList = Schemas["VideoList"];
export type VideoCreated = Schemas["VideoCreated"];
export type ResumableUploadUrl = Schemas["ResumableUploadUrl"];
export type Video = Schemas["Video"];
export type Rendition = Schemas["Rendition"];
export type CaptionsStored = Schemas["CaptionsStored"];
export type Account = Schemas["Account"];
export type AccountSettingsUpdate = Input<Schemas["AccountSettingsUpdate"]>;
export type KeyCreate = Input<Schemas["KeyCreate"]>;
export type KeyRoll = Input<Schemas["KeyRoll"]>;
export type Key = Schemas["Key"];
export type KeyList = Schemas["KeyList"];
export type KeyCreated = Schemas["KeyCreated"];
export type Role = Schemas["Role"];
export type Member = Schemas["Member"];
export type MemberList = Schemas["MemberList"];
export type MemberSignInLink = Schemas["MemberSignInLink"];
export type MemberUpdate = Input<Schemas["MemberUpdate"]>;
export type InvitationCreate = Input<Schemas["InvitationCreate"]>;
export type Invitation = Schemas["Invitation"];
export type InvitationCreated = Schemas["InvitationCreated"];
export type InvitationList = Schemas["InvitationList"];
export type DeviceCodeCreate = Input<Schemas["DeviceCodeCreate"]>;
export type DeviceCode = Schemas["DeviceCode"];
export type DeviceCodeCollect = Input<Schemas["DeviceCodeCollect"]>;
export type SignInLinkCreate = Input<Schemas["SignInLinkCreate"]>;
export type SignInLink = Schemas["SignInLink"];
export type AccountCreate = Input<Schemas["AccountCreate"]>;
export type AccountUpdate = Input<Schemas["AccountUpdate"]>;
export type OwnLimit = Schemas["OwnLimit"];
export type OperatorAccount = Schemas["OperatorAccount"];
export type OperatorAccountPage = Schemas["OperatorAccountPage"];
export type TakedownCreate = Input<Schemas["TakedownCreate"]>;
export type Takedown = Schemas["Takedown"];
export type TakedownPage = Schemas["TakedownPage"];
export type FailingWebhook = Schemas["FailingWebhook"];
export type FailingWebhookPage = Schemas["FailingWebhookPage"];
export type EventType = Schemas["EventType"];
export type Actor = Schemas["Actor"];
export type Event = Schemas["Event"];
export type LinkEvent = Schemas["LinkEvent"];
export type DomainEvent = Schemas["DomainEvent"];
export type VideoEvent = Schemas["VideoEvent"];
export type KeyEvent = Schemas["KeyEvent"];
export type AccountEvent = Schemas["AccountEvent"];
export type MemberEvent = Schemas["MemberEvent"];
export type InvitationEvent = Schemas["InvitationEvent"];
export type SessionEvent = Schemas["SessionEvent"];
export type SignInLinkEvent = Schemas["SignInLinkEvent"];
export type WebhookEvent = Schemas["WebhookEvent"];
export type Session = Schemas["Session"];
export type EventSignInLink = Schemas["EventSignInLink"];
export type Message = Schemas["Message"];
export type LinkMessage = Schemas["LinkMessage"];
export type DomainMessage = Schemas["DomainMessage"];
export type VideoMessage = Schemas["VideoMessage"];
export type KeyMessage = Schemas["KeyMessage"];
export type AccountMessage = Schemas["AccountMessage"];
export type MemberMessage = Schemas["MemberMessage"];
export type InvitationMessage = Schemas["InvitationMessage"];
export type SessionMessage = Schemas["SessionMessage"];
export type SignInLinkMessage = Schemas["SignInLinkMessage"];
export type WebhookMessage = Schemas["WebhookMessage"];
export type MessageTime = Schemas["MessageTime"];
export type EventPage = Schemas["EventPage"];
export type WebhookEvents = Schemas["WebhookEvents"];
export type WebhookCreate = Input<Schemas["WebhookCreate"]>;
export type WebhookUpdate = Input<Schemas["WebhookUpdate"]>;
export type WebhookReplay = Input<Schemas["WebhookReplay"]>;
export type Webhook = Schemas["Webhook"];
export type WebhookCreated = Schemas["WebhookCreated"];
export type WebhookList = Schemas["WebhookList"];
export type DeliveryAttempt = Schemas["DeliveryAttempt"];
export type Delivery = Schemas["Delivery"];
export type DeliveryPage = Schemas["DeliveryPage"];
export type Replay = Schemas["Replay"];
export type Recovery = Schemas["Recovery"];
export type RecoveryResume = Input<Schemas["RecoveryResume"]>;
export type DocURL = Schemas["DocURL"];
/** The operations of an account. */
export declare class Operations extends Client {
    /**
     * List links.
     *
     * Links of the account, newest first. Pages stay stable while links are added or removed: no link comes twice,
     * and no link that exists throughout is left out.
     */
    listLinks(query?: Query<"listLinks">, options?: CallOptions): Promise<LinkList>;
    /** All records of `listLinks`, over all pages. */
    links(query?: Omit<Query<"listLinks">, "cursor">, options?: CallOptions): Pages<LinkSummary>;
    /**
     * Create a link.
     *
     * Makes a short link. Without `slug`, a random one of seven characters is generated. Needs plan `creator` or
     * higher.
     *
     * `url` must be an absolute http or https address with a host and without user info, at most 8,192 bytes; it is
     * returned as given and redirected to in its standard form. It may not point at our own short
     * host, and on a custom domain not at any domain of the account.
     * `slug` takes letters, digits, `_`, `.` and `-` and begins with a letter or digit; upper and lower case are the same
     * slug. Some words are reserved on the default host. After a delete the same account may take the slug again at
     * once, another account after 30 days.
     */
    createLink(body: LinkCreate, options?: CreateOptions): Promise<LinkCreated>;
    /**
     * Create up to 100 links.
     *
     * Items are checked one by one and answered in input order, so one bad item never stops the others. Only a
     * missing, empty or too long `urls` fails the request as a whole. If two items of one request want the same
     * slug, the first gets it. Needs plan `business` or higher and costs one request of the rate limit per ten
     * items.
     */
    bulkCreateLinks(body: BulkCreate, options?: CreateOptions): Promise<BulkAllCreated | BulkResults>;
    /**
     * Change up to 100 links.
     *
     * Makes one change to several links in one step. `results` has one entry for each id, in the same order. `tags` replaces
     * all tags and cannot be combined with `addTags` or `removeTags`. Needs plan `business` or higher.
     */
    bulkUpdateLinks(body: BulkUpdate, options?: CallOptions): Promise<BulkChanged>;
    /**
     * Delete up to 100 links.
     *
     * Deletes several links in one step. `results` has one entry for each id, in the same order. Needs plan `business` or
     * higher.
     */
    bulkDeleteLinks(body: BulkDelete, options?: CreateOptions): Promise<BulkChanged>;
    /**
     * List tags.
     *
     * Tags of the account's links and videos in alphabetical order. Needs the scope `links:read` or `videos:read`. A tag that
     * nothing carries any more leaves the list within a day.
     */
    listTags(query?: Query<"listTags">, options?: CallOptions): Promise<TagList>;
    /** All records of `listTags`, over all pages. */
    tags(query?: Omit<Query<"listTags">, "cursor">, options?: CallOptions): Pages<TagList["data"][number]>;
    /**
     * Whether a slug can be taken.
     *
     * Says whether a create could take this slug now. Only the slug is checked, and nothing is reserved. An account
     * can find 30 taken slugs in a minute. After that, every request gets 429 until the limit allows more.
     */
    checkSlug(query: Query<"checkSlug">, options?: CallOptions): Promise<SlugAvailable>;
    /**
     * Get a link.
     *
     * Everything about a link. The answer has an `ETag` for `If-Match` and `If-None-Match`.
     */
    getLink(id: string, options?: ReadOptions): Promise<Link>;
    /**
     * Update a link.
     *
     * An absent field keeps its value, and `null` clears a field, except `url`. Slug and domain cannot be changed.
     * They and unknown fields are ignored and listed in `ignoredFields`. When the call returns, visitors are no
     * longer sent to the old destination. Needs plan `creator` or higher.
     */
    updateLink(id: string, body: LinkUpdate, options?: ChangeOptions): Promise<LinkUpdated>;
    /**
     * Delete a link.
     *
     * When the call returns, the short address no longer works anywhere. Needs plan `creator` or higher.
     */
    deleteLink(id: string, options?: ChangeOptions): Promise<void>;
    /**
     * Clicks of a link over time.
     *
     * Clicks per UTC day, referring host, country, kind of device and rule. Redirected GET requests count. Programs that call
     * themselves bots, crawlers or spiders, known preview crawlers and prefetches do not. No address of a visitor is ever stored.
     */
    getLinkStats(id: string, query?: Query<"getLinkStats">, options?: CallOptions): Promise<LinkStats>;
    /**
     * A link's QR code.
     *
     * A picture of the QR code of the link's short address. The short address of a link never changes, so neither does its
     * code: keep it, or ask again with `If-None-Match`.
     */
    getLinkQr(id: string, query?: Query<"getLinkQr">, options?: ReadOptions): Promise<Blob>;
    /**
     * What a link would decide about a visit.
     *
     * Says where a visit would lead and why, by the same function that redirects. Nothing is counted. Anything you
     * leave out is unknown and meets no condition.
     */
    explainLink(id: string, query?: Query<"explainLink">, options?: CallOptions): Promise<LinkExplained>;
    /**
     * List domains.
     *
     * Domains of the account, newest first.
     */
    listDomains(query?: Query<"listDomains">, options?: CallOptions): Promise<DomainList>;
    /** All records of `listDomains`, over all pages. */
    domains(query?: Omit<Query<"listDomains">, "cursor">, options?: CallOptions): Pages<Domain>;
    /**
     * Claim a domain.
     *
     * Answers with the DNS records to set. Several accounts may claim a host name; the first that proves ownership
     * gets it. `hostname` is a DNS name of two or more labels without port, wildcard or address. Needs plan
     * `creator` or higher.
     *
     * A verified domain is checked once a day, and more often after a failed check. When the TXT record has been missing
     * for 7 days the domain lapses: it takes no new links, its `status` is `pending`, and another account may verify the
     * name. Its redirects keep working until that happens. A check that finds the record again ends the lapse.
     */
    createDomain(body: DomainCreate, options?: CreateOptions): Promise<Domain>;
    /**
     * Get a domain.
     *
     * The domain with the DNS records to set and the result of the last check.
     */
    getDomain(id: string, options?: CallOptions): Promise<Domain>;
    /**
     * Change a domain's pages.
     *
     * Sets where the host sends visits that no link serves. When the call returns, every replica uses the new pages.
     * A pending domain can have pages too; they take effect once it is verified.
     */
    updateDomain(id: string, body: DomainUpdate, options?: ChangeOptions): Promise<Domain>;
    /**
     * Delete a domain.
     *
     * Refused while links use it, and while it is the account's default domain. Needs plan `creator` or higher.
     */
    deleteDomain(id: string, options?: ChangeOptions): Promise<void>;
    /**
     * Visits of a domain that no link served.
     *
     * Visits of `/` (`home`), of addresses without a link (`notFound`) and of links that have ended (`ended`), per UTC day, whether
     * the domain has a page for them or not. Only GET requests of people count, on a verified domain: no crawler, robot or
     * prefetch, no `robots.txt` or `favicon.ico`, and no visit that was refused with 429.
     */
    getDomainStats(id: string, query?: Query<"getDomainStats">, options?: CallOptions): Promise<DomainStats>;
    /**
     * Check the proof now.
     *
     * Looks up the TXT record and answers with the domain: `verified` if the record was found, otherwise still
     * `pending`. If another account has already proven the host name, the answer is 409. Needs plan `creator` or
     * higher. No body is needed.
     */
    verifyDomain(id: string, options?: CreateOptions): Promise<Domain>;
    /**
     * List and search videos.
     *
     * The videos of the account, newest first. Filters combine. The next page is at the address in the header `Link` with
     * `rel="next"`, which is absent on the last page. A page can have fewer videos than `limit` and still have a next one.
     */
    listVideos(query?: Query<"listVideos">, options?: CallOptions): Promise<VideoList & {
        hasMore: boolean;
        nextCursor: string | null;
    }>;
    /** All records of `listVideos`, over all pages. */
    videos(query?: Omit<Query<"listVideos">, "cursor">, options?: CallOptions): Pages<VideoSummary>;
    /**
     * Create a video and get its upload address.
     *
     * Send the file with PUT to `uploadUrl`, which works for 24 hours. No header is required; `Content-Type` is
     * optional. Then ask for the video until `status` is `ready` or `failed`. The share address works at once. Needs
     * plan `creator` or higher.
     *
     * Privacy `password` requires `password`, and privacy `expiring` requires `expiresAt`. With any other privacy
     * these fields are rejected. `expiresAt` must lie in the future. All of this can be changed later with `PUT
     * /api/v1/videos/{id}/access`.
     */
    createVideo(body: VideoCreate, options?: CreateOptions): Promise<VideoCreated>;
    /**
     * Get a video.
     *
     * Status and everything known about the video. The call also checks whether an awaited upload has arrived. While
     * `uploading` or `failed`, callers with `videos:write` always get an `uploadUrl` with at least an hour left.
     * Other callers never see an address to which a file can be sent.
     *
     * `playbackUrl` and `downloadUrl` give the owner's access: they work whatever the privacy, even after the video
     * has expired. They stop working after some hours; ask again without `If-None-Match` for new ones. A video that
     * the operator took down has neither.
     */
    getVideo(id: string, options?: ReadOptions): Promise<Video>;
    /**
     * Update a video.
     *
     * Title, description, tags and external id can be changed. An absent field keeps its value, and `null` clears
     * it. All other fields are ignored and listed in `ignoredFields`. Needs plan `creator` or higher.
     */
    updateVideo(id: string, body: VideoUpdate, options?: ChangeOptions): Promise<VideoUpdated>;
    /**
     * Delete a video.
     *
     * Works in every state. When the call returns, the share page and playback no longer work. The files are removed
     * soon after. Needs plan `creator` or higher.
     */
    deleteVideo(id: string, options?: ChangeOptions): Promise<void>;
    /**
     * See who may watch a video.
     *
     * The answer can be sent back with `PUT`. A password is never shown.
     */
    getVideoAccess(id: string, options?: CallOptions): Promise<VideoAccess>;
    /**
     * Decide who may watch a video.
     *
     * Replaces the whole rule: `privacy` is required, and any other field that is left out takes its default. The rules are
     * those of creation, with two exceptions. A password may be left out when the video has one and keeps privacy `password`. The present `expiresAt`
     * may be sent back even when it has passed; a new one must lie in the future, and brings an expired video back.
     *
     * When the call returns, no page, playlist or download is served under the old rule any more, and viewers who
     * had entered a password must enter one again. Media addresses that viewers already have end within 15 minutes.
     * Caches between the service and its viewers, such as a CDN, may keep the picture `/v/<slug>/thumbnail.jpg` and
     * the answer of `/oembed` for five minutes. Needs plan `creator` or higher.
     */
    setVideoAccess(id: string, body: VideoAccessUpdate, options?: ChangeOptions): Promise<VideoAccess>;
    /**
     * Choose the picture of a video.
     *
     * Makes the frame at `time` the picture of the video: on the share page before playing, in previews and as
     * `posterUrl`. `null` restores the automatic picture. The call waits a few seconds for the picture. If it takes
     * longer, it appears later. The video must be ready. Needs plan `creator` or higher.
     */
    setVideoThumbnail(id: string, body: VideoThumbnail, options?: ChangeOptions): Promise<VideoUpdated>;
    /**
     * List the captions of a video.
     *
     * One track for each language, in the order of the language tags.
     */
    listCaptions(id: string, query?: Query<"listCaptions">, options?: CallOptions): Promise<CaptionList>;
    /** All records of `listCaptions`, over all pages. */
    captions(id: string, query?: Omit<Query<"listCaptions">, "cursor">, options?: CallOptions): Pages<CaptionList["data"][number]>;
    /**
     * Set the captions of one language.
     *
     * The body is a WebVTT file, at most 1 MiB. It replaces earlier captions of that language. A video has captions in at
     * most 50 languages; players show each under the language's own name. Needs plan `creator` or higher.
     */
    putCaptions(id: string, lang: string, body: string | Blob, options?: CallOptions): Promise<CaptionsStored>;
    /**
     * Remove the captions of one language.
     *
     * Needs plan `creator` or higher.
     */
    deleteCaptions(id: string, lang: string, options?: CallOptions): Promise<void>;
    /**
     * Read the feed of events.
     *
     * Every change of the account's records, newest first, kept for 30 days: who made it, in which request, and the
     * record as the API showed it right afterwards. The answer includes every change that was made before the
     * request.
     *
     * With `after`, the feed is read oldest first from a given place, and no event is ever skipped. With `wait`, the
     * request is held until an event arrives or the time is over. Pass each answer's `nextCursor` as the next
     * `after`. `after` also takes the `id` of an event; an empty `after` means the beginning. `wait` without `after`
     * waits for new events.
     *
     * After the operator has restored the installation from a backup, the events since that backup are lost. A place
     * among them, or the `id` of one of them, gets 410 `CURSOR_AHEAD`, and `restartAfter` says where to read on.
     */
    listEvents(query?: Query<"listEvents">, options?: CallOptions): Promise<EventPage>;
    /** All records of `listEvents`, over all pages. */
    events(query?: Omit<Query<"listEvents">, "cursor">, options?: CallOptions): Pages<Event>;
    /**
     * List webhooks.
     *
     * Webhooks of the account, newest first.
     */
    listWebhooks(query?: Query<"listWebhooks">, options?: CallOptions): Promise<WebhookList>;
    /** All records of `listWebhooks`, over all pages. */
    webhooks(query?: Omit<Query<"listWebhooks">, "cursor">, options?: CallOptions): Pages<Webhook>;
    /**
     * Create a webhook.
     *
     * From now on, every event of the named types is sent to `url` as Standard Webhooks defines. The answer has the
     * secret that signs the messages; the secret is never shown again. An account has at most 20 webhooks. Needs
     * plan `creator` or higher.
     */
    createWebhook(body: WebhookCreate, options?: CreateOptions): Promise<WebhookCreated>;
    /**
     * Get a webhook.
     *
     * The webhook without its secret.
     */
    getWebhook(id: string, options?: CallOptions): Promise<Webhook>;
    /**
     * Change a webhook.
     *
     * Absent fields keep their values. If a webhook was disabled for its failures, enabling it starts its five days
     * again. A replay can send what it missed. Needs plan `creator` or higher.
     */
    updateWebhook(id: string, body: WebhookUpdate, options?: ChangeOptions): Promise<Webhook>;
    /**
     * Delete a webhook.
     *
     * Nothing more is sent to it. Needs plan `creator` or higher.
     */
    deleteWebhook(id: string, options?: ChangeOptions): Promise<void>;
    /**
     * Replace the secret.
     *
     * Both secrets sign each message for `overlapSeconds`, so that a receiver can switch without losing a message.
     * With 0, the default, the old secret stops signing at once. The body may be left out. Needs plan `creator` or
     * higher.
     */
    rollWebhookSecret(id: string, body?: KeyRoll, options?: CreateOptions): Promise<WebhookCreated>;
    /**
     * Send a test message.
     *
     * Sends `webhook.test` with the webhook as its data. Needs plan `creator` or higher.
     */
    testWebhook(id: string, options?: CreateOptions): Promise<Delivery>;
    /**
     * Send a time range again.
     *
     * Sends every event from `from` to `to` that the webhook subscribes to now, whether or not it was delivered
     * before. Messages keep the id of their event. A replay runs as fast as the receiver takes messages. While a
     * webhook has ten unfinished replays, a further one gets `RATE_LIMITED`. Needs plan `creator` or higher.
     */
    replayWebhook(id: string, body: WebhookReplay, options?: CreateOptions): Promise<Replay>;
    /**
     * List deliveries.
     *
     * The messages sent to the webhook in the last 30 days and their results, newest first.
     */
    listDeliveries(id: string, query?: Query<"listDeliveries">, options?: CallOptions): Promise<DeliveryPage>;
    /** All records of `listDeliveries`, over all pages. */
    deliveries(id: string, query?: Omit<Query<"listDeliveries">, "cursor">, options?: CallOptions): Pages<Delivery>;
    /**
     * Send a delivery again.
     *
     * Sends the message now. If that fails, it is retried on the usual schedule. Needs plan `creator` or higher.
     */
    retryDelivery(id: string, delivery: string, options?: CreateOptions): Promise<Delivery>;
    /**
     * The account of this key.
     *
     * Any valid key may ask, whatever its scopes.
     */
    getAccount(options?: CallOptions): Promise<Account>;
    /**
     * Change the account's settings.
     *
     * Changes the name, and the domain of new links. Existing links keep their domain. The default domain must be
     * verified, and cannot be deleted while it is the default. If it lapses, or was deleted in the moment in which
     * it became the default, creates without `domainId` get a 409 that says so until it is verified again or another
     * default is set. Only owners' sessions, and keys with the scope `account:write`, may call.
     */
    updateAccount(body: AccountSettingsUpdate, options?: ChangeOptions): Promise<Account>;
    /**
     * Export everything.
     *
     * Streams everything that the account has, one JSON object per line: `{"type": …, "data": …}`. The types are
     * `account`, `key` (those that the list of keys shows), `member`, `invitation`, `domain`, `domainStats`, `link`,
     * `linkStats`, `video`, `webhook` and `event`. Each video has a download address; no line has a secret. Needs all read scopes. If a member's key or
     * session asks, the member must be an owner. An answer that breaks off before its end is incomplete. Each server
     * runs at most two exports of an account at a time; a further one gets 429. A record that cannot be read has a
     * line of the type `unreadable`, with its `type` and `id`.
     */
    exportAccount(options?: CallOptions): AsyncGenerator<ExportLine, void, undefined>;
    /**
     * List keys.
     *
     * Keys of the account, newest first: every key in use, and each of the 200 newest keys, even if it was revoked or has expired. An older one can still be read by its id. The key itself is never shown again.
     */
    listKeys(query?: Query<"listKeys">, options?: CallOptions): Promise<KeyList>;
    /** All records of `listKeys`, over all pages. */
    keys(query?: Omit<Query<"listKeys">, "cursor">, options?: CallOptions): Pages<Key>;
    /**
     * Create a key.
     *
     * The answer is the only time that `key` is shown. Without `scopes` the key gets links, videos, domains and
     * keys, each with read and write. A key cannot give scopes that it does not have itself.
     */
    createKey(body: KeyCreate, options?: CreateOptions): Promise<KeyCreated>;
    /**
     * Get a key.
     *
     * Everything about a key except the key itself, which is shown only once, when it is created.
     */
    getKey(id: string, options?: CallOptions): Promise<Key>;
    /**
     * Revoke a key.
     *
     * When the call returns, the key is rejected everywhere. Revoking a key again is not an error.
     */
    revokeKey(id: string, options?: CallOptions): Promise<void>;
    /**
     * Replace a key.
     *
     * Makes a new key with the name, scopes and end of the old one. The old key keeps working for `overlapSeconds`
     * and then expires. With 0, the default, it is rejected once the call returns. The body may be left out.
     */
    rollKey(id: string, body?: KeyRoll, options?: CreateOptions): Promise<KeyCreated>;
    /**
     * List members.
     *
     * Everybody who may sign in to the account, oldest first. `signIn` says how each of them can sign in without anybody's help.
     */
    listMembers(query?: Query<"listMembers">, options?: CallOptions): Promise<MemberList>;
    /** All records of `listMembers`, over all pages. */
    members(query?: Omit<Query<"listMembers">, "cursor">, options?: CallOptions): Pages<Member>;
    /**
     * Change a member.
     *
     * Changes a member's name or role. You cannot assign a role that has scopes you lack, and only a signed-in owner
     * can make, change or remove an owner. A lower role takes effect on the member's next request, and keys that the
     * member made are revoked if they exceed the new role. A member's `ETag` is `"r"` with its `updatedAt` behind
     * the letter, such as `"r1790000000000"`. Send it as `If-Match` to keep from overwriting a change that somebody
     * else made meanwhile.
     */
    updateMember(id: string, body: MemberUpdate, options?: ChangeOptions): Promise<Member>;
    /**
     * Remove a member.
     *
     * Ends the membership. The member's next request is refused; their sessions end, and the keys and invitations that they made
     * are revoked.
     */
    removeMember(id: string, options?: CallOptions): Promise<void>;
    /**
     * Make a sign-in link for a member.
     *
     * Makes a link for a member who has no way to sign in without help, as `signIn` in the list of members shows.
     * The link works once, for 15 minutes. The answer is the only time that `url` is shown; send it to the person
     * yourself.
     *
     * Only a signed-in admin or owner may call this, never an API key. Admins can make links for viewers and
     * members, and owners for everybody except owners. For an owner, ask the operator. An account can make at most
     * 20 links in 24 hours.
     *
     * The session that the link opens belongs to this membership alone: it cannot switch to another account, and it can add a
     * passkey only for a person who is in no other account and has no way to sign in yet. The events `sign_in_link.created` and
     * `sign_in_link.used` name who made the link, and the member sees at their next sign-in that it was used.
     */
    createMemberSignInLink(id: string, options?: CreateOptions): Promise<MemberSignInLink>;
    /**
     * List open invitations.
     *
     * Invitations that nobody has accepted yet, newest first. Their links are not shown again.
     */
    listInvitations(query?: Query<"listInvitations">, options?: CallOptions): Promise<InvitationList>;
    /** All records of `listInvitations`, over all pages. */
    invitations(query?: Omit<Query<"listInvitations">, "cursor">, options?: CallOptions): Pages<Invitation>;
    /**
     * Invite somebody.
     *
     * Makes a link that adds one member with the given role. It works once, for seven days. The answer is the only time that
     * `url` is shown; send it to the person yourself. You cannot assign a role that has scopes you lack, and only a signed-in
     * owner can invite an owner.
     */
    createInvitation(body: InvitationCreate, options?: CreateOptions): Promise<InvitationCreated>;
    /**
     * Revoke an invitation.
     *
     * Its link stops working at once. An invitation that was accepted or revoked is a 404.
     */
    revokeInvitation(id: string, options?: CallOptions): Promise<void>;
    /**
     * Ask a person for a key.
     *
     * For programs such as the command line. Show `userCode`, open `verificationUrl` in a browser, and ask for the key every
     * `interval` seconds. The person signs in and approves; they must have a role that may make keys. Needs no key.
     */
    createDeviceCode(body?: DeviceCodeCreate, options?: CallOptions): Promise<DeviceCode>;
    /**
     * Collect the key.
     *
     * Answers 409 `AUTHORIZATION_PENDING` until the person has decided. If they deny the request, it answers 403. If
     * they approve, it answers with the key, once. Needs no key.
     */
    collectDeviceKey(body: DeviceCodeCollect, options?: CallOptions): Promise<KeyCreated>;
}
/** Calls the operator's API. `baseUrl` is the admin address and `key` the admin token. */
export declare class Operator extends Client {
    /**
     * List and search accounts.
     *
     * In the order of their ids. During a long search, a page before the last may be short or empty; continue with `nextCursor`.
     */
    adminListAccounts(query?: Query<"adminListAccounts">, options?: CallOptions): Promise<OperatorAccountPage>;
    /** All records of `adminListAccounts`, over all pages. */
    adminAccounts(query?: Omit<Query<"adminListAccounts">, "cursor">, options?: CallOptions): Pages<OperatorAccount>;
    /**
     * Create an account.
     *
     * The account has no key and no member yet.
     */
    adminCreateAccount(body: AccountCreate, options?: CreateOptions): Promise<OperatorAccount>;
    /**
     * Get an account.
     *
     * The account with its plan, its state and its own limits.
     */
    adminGetAccount(id: string, options?: CallOptions): Promise<OperatorAccount>;
    /**
     * Rename, re-plan or suspend an account.
     *
     * When the call returns, the change applies to the account's next request. A lower plan never stops an existing
     * redirect or share page. A suspension does: they answer 410 `ACCOUNT_SUSPENDED` until it is lifted. A 503 means
     * that the change is stored but not yet in force everywhere. The service retries until it is.
     */
    adminUpdateAccount(id: string, body: AccountUpdate, options?: CallOptions): Promise<OperatorAccount>;
    /**
     * Erase a suspended account.
     *
     * Starts to erase everything that the account has. When the call returns, its redirects and pages have stopped.
     * GET shows `state: "deleting"` until nothing is left, and then answers 404. An erasure cannot be stopped or
     * undone.
     */
    adminDeleteAccount(id: string, options?: CallOptions): Promise<OperatorAccount>;
    /**
     * Create a key for an account.
     *
     * The key itself is in this answer and never shown again.
     */
    adminCreateKey(id: string, body: KeyCreate, options?: CreateOptions): Promise<KeyCreated>;
    /**
     * Make a one-time sign-in link.
     *
     * Signs in an existing member (`memberId`), or a new one (`name` and `role`). A name always makes a new member,
     * since two people may have the same name. The link works once, for 15 minutes.
     *
     * The operator's link also helps a person who lost their passkeys, and opens a session like any other. For a
     * member through a group at the identity provider, the answer is 409 `SIGN_IN_BY_PROVIDER`, because they sign in
     * with the provider.
     */
    adminCreateSignInLink(id: string, body: SignInLinkCreate, options?: CallOptions): Promise<SignInLink>;
    /**
     * List webhooks that fail.
     *
     * Enabled webhooks of all accounts whose last attempt failed, by id. Of the receiver's address only the host is
     * shown, since the rest may hold a secret.
     */
    adminListFailingWebhooks(query?: Omit<Query<"adminListFailingWebhooks">, "failing">, options?: CallOptions): Promise<FailingWebhookPage>;
    /** All records of `adminListFailingWebhooks`, over all pages. */
    adminFailingWebhooks(query?: Omit<Omit<Query<"adminListFailingWebhooks">, "failing">, "cursor">, options?: CallOptions): Pages<FailingWebhook>;
    /**
     * List takedowns.
     *
     * Newest first.
     */
    adminListTakedowns(query?: Query<"adminListTakedowns">, options?: CallOptions): Promise<TakedownPage>;
    /** All records of `adminListTakedowns`, over all pages. */
    adminTakedowns(query?: Omit<Query<"adminListTakedowns">, "cursor">, options?: CallOptions): Pages<Takedown>;
    /**
     * Take down a link or a video.
     *
     * When the call returns, every replica answers 410 `TAKEN_DOWN` for the link or video. The owner sees the reason
     * but cannot lift the takedown, not even by deleting the record and creating the slug again. If the link or
     * video is taken down already, the answer is the present takedown.
     */
    adminTakeDown(body: TakedownCreate, options?: CreateOptions): Promise<Takedown>;
    /**
     * Lift a takedown.
     *
     * The link or video is served again.
     */
    adminLiftTakedown(id: string, options?: CallOptions): Promise<void>;
    /**
     * See what waits since a restore.
     *
     * The last restore from a backup, and what has waited for the operator since then. Every time is `null` if the
     * installation was never restored.
     */
    adminGetRecovery(options?: CallOptions): Promise<Recovery>;
    /**
     * End what waits since a restore.
     *
     * Resumes webhooks, or turns the janitor on again, which removes the objects that no record names. Replicas follow
     * within seconds. Deliveries that have waited are sent then. What does not wait stays as it is. If another restore
     * than the named one is the last, the answer is 412: look at the data of that one first.
     */
    adminResume(body: RecoveryResume, options?: CreateOptions): Promise<Recovery>;
    /**
     * Revoke any key.
     *
     * The key stops working at once, whichever account it belongs to.
     */
    adminRevokeKey(id: string, options?: CallOptions): Promise<void>;
}
export {};
