/**
 * Client of the Linkreel API for browsers and Node. Types come from the API's
 * own document; nothing but `fetch` is needed.
 *
 * Calls are retried when that is worth it, as long as the service asks in
 * Retry-After. Each POST carries an Idempotency-Key, so a retry never acts twice.
 */
import type { components } from "./schema.js";
type Schemas = components["schemas"];
export type { components, paths } from "./schema.js";
export type LinkCreate = Schemas["LinkCreate"];
export type LinkUpdate = Schemas["LinkUpdate"];
export type Link = Schemas["Link"];
export type LinkSummary = Schemas["LinkSummary"];
export type LinkCreated = Schemas["LinkCreated"];
export type LinkStats = Schemas["LinkStats"];
export type DomainStats = Schemas["DomainStats"];
export type LinkRule = Schemas["LinkRule"];
export type LinkExplained = Schemas["LinkExplained"];
export type SlugAvailable = Schemas["SlugAvailable"];
/** A visit to explain. What is left out is unknown and fulfils no condition; without `at` it is now. */
export type Visit = {
    country?: string;
    device?: string;
    system?: string;
    language?: string;
    query?: string;
    path?: string;
    percent?: number;
    at?: string | number;
};
export type BulkItem = Schemas["BulkItem"];
export type BulkResult = Schemas["BulkItemCreated"] | Schemas["BulkItemFailed"];
export type Domain = Schemas["Domain"];
export type VideoCreate = Omit<Schemas["VideoCreate"], "privacy" | "recording"> & {
    privacy?: Schemas["Privacy"];
    recording?: boolean;
};
export type VideoUpdate = Schemas["VideoUpdate"];
export type Video = Schemas["Video"];
export type VideoSummary = Schemas["VideoSummary"];
export type VideoCreated = Schemas["VideoCreated"];
export type Account = Schemas["Account"];
export type Key = Schemas["Key"];
export type KeyCreate = Schemas["KeyCreate"];
export type KeyCreated = Schemas["KeyCreated"];
/** Filters combine; `tag` may be several, all must hold. */
export type LinkFilter = {
    q?: string;
    tag?: string | string[];
    domainId?: string;
    slug?: string;
    externalId?: string;
    archived?: "true" | "false" | "all";
};
export type VideoFilter = {
    q?: string;
    tag?: string | string[];
    status?: string;
    privacy?: string;
    externalId?: string;
};
/** `tags` replaces all tags and goes without `addTags` and `removeTags`. */
export type BulkSet = {
    tags?: string[];
    addTags?: string[];
    removeTags?: string[];
    archived?: boolean;
    expiresAt?: string | number | null;
};
export type VideoAccess = {
    privacy: Schemas["Privacy"];
    expiresAt: number | null;
    allowDownload: boolean;
    embedOrigins: string[];
};
export type ErrorBody = Schemas["Error"]["error"];
export interface Options {
    /** Address of the deployment, such as https://linkreel.example. */
    baseUrl: string;
    /** An API key. In a browser use one with few scopes. */
    key: string;
    /** Tries in all, 5 by default. */
    attempts?: number;
    /** Milliseconds for one attempt, 30,000 by default. */
    timeout?: number;
    /** The longest single wait that is accepted, 60,000 ms by default. */
    maxWait?: number;
    fetch?: typeof fetch;
    /** Waits; tests put their clock here. */
    sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}
/** The API refused a call. Decide by `code`. */
export declare class ApiError extends Error {
    readonly status: number;
    readonly body: Partial<ErrorBody>;
    readonly retryAfter?: number | undefined;
    constructor(status: number, body: Partial<ErrorBody>, retryAfter?: number | undefined);
    get code(): string;
    get requestId(): string;
    get details(): NonNullable<ErrorBody["details"]>;
}
/** A video that could not be prepared. */
export declare class VideoFailed extends Error {
    readonly video: Video;
    constructor(video: Video);
    get code(): string;
}
/** Storage does not know the upload address any more: get the video again. */
export declare class UploadGone extends Error {
}
export interface CallOptions {
    signal?: AbortSignal;
    idempotencyKey?: string;
}
export interface UploadOptions extends CallOptions {
    onProgress?: (sent: number, total: number) => void;
    /** Bytes per part of an upload session, 8 MiB by default. */
    part?: number;
}
export declare class Linkreel {
    #private;
    constructor(options: Options);
    createLink(link: LinkCreate, o?: CallOptions): Promise<{
        id: string;
        shortUrl: string;
        slug: string;
        destinationUrl: string;
        createdAt: string;
        tags: string[];
        externalId: string | null;
        archived: boolean;
        importedClicks?: components["schemas"]["ImportedClicks"];
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    getLink(linkId: string, o?: CallOptions): Promise<{
        _id: string;
        id: string;
        slug: string;
        shortUrl: string;
        destinationUrl: string;
        title: string;
        clicks: number;
        importedClicks?: components["schemas"]["ImportedClicks"];
        status: components["schemas"]["LinkStatus"];
        takenDown: {
            at: components["schemas"]["Timestamp"];
            reason: string;
        } | null;
        domainId: string | null;
        expiresAt: number | null;
        ogTitle: string | null;
        ogDescription: string | null;
        ogImage: string | null;
        tags: string[];
        externalId: string | null;
        archived: boolean;
        redirectType: 301 | 302 | 308;
        forwardQuery: boolean;
        forwardPath: boolean;
        startsAt: number | null;
        expiredUrl: string | null;
        hasPassword: boolean;
        maxClicks: number | null;
        hasRules: boolean;
        rules: components["schemas"]["LinkRule"][];
        createdAt: components["schemas"]["Timestamp"];
        updatedAt: components["schemas"]["Timestamp"];
    }>;
    /** What is absent stays, `null` clears. */
    updateLink(linkId: string, update: LinkUpdate, o?: CallOptions): Promise<{
        success: true;
        slug: string;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    deleteLink(linkId: string, o?: CallOptions): Promise<void>;
    linkStats(linkId: string, days?: {
        from?: string;
        to?: string;
    }, o?: CallOptions): Promise<{
        from: string;
        to: string;
        total: number;
        days: {
            date: string;
            clicks: number;
        }[];
        referrers: {
            host: string;
            clicks: number;
        }[];
        countries: {
            country: string;
            clicks: number;
        }[];
        devices: {
            device: "desktop" | "mobile" | "tablet" | "other";
            clicks: number;
        }[];
        rules: {
            rule: string;
            clicks: number;
        }[];
    }>;
    /** Says what a link would decide about a visit. Nothing is counted. */
    explainLink(linkId: string, visit?: Visit, o?: CallOptions): Promise<{
        status: 200 | 301 | 302 | 303 | 308 | 404 | 410;
        location: string | null;
        rule: string | null;
        why: string;
    }>;
    /** Says whether a create could take a slug now. Nothing is reserved. */
    slugAvailable(slug: string, domainId?: string, o?: CallOptions): Promise<{
        available: boolean;
        reason: "taken" | "reserved" | "invalid" | null;
    }>;
    listLinks(page?: LinkFilter & {
        limit?: number;
        cursor?: number | null;
    }, o?: CallOptions): Promise<{
        data: components["schemas"]["LinkSummary"][];
        hasMore: boolean;
        nextCursor: number | null;
    }>;
    /** All links that fit the filter, newest first; pages are read as you go. */
    links(o?: CallOptions, filter?: LinkFilter): AsyncGenerator<LinkSummary, void, undefined>;
    /** Any number of links, 100 to a request; one result per item, in order. */
    bulkCreate(items: BulkItem[], o?: CallOptions): Promise<BulkResult[]>;
    /** Changes up to 100 links at once; one result per id, in order. */
    bulkChange(ids: string[], set: BulkSet, o?: CallOptions): Promise<BulkResult[]>;
    bulkDelete(ids: string[], o?: CallOptions): Promise<BulkResult[]>;
    createDomain(hostname: string, o?: CallOptions): Promise<{
        id: string;
        hostname: string;
        status: "pending" | "verified";
        records: {
            type: string;
            name: string;
            value: string;
        }[];
        createdAt: components["schemas"]["Timestamp"];
        verifiedAt: number | null;
        checkedAt: number | null;
        reason: string | null;
        certificate: components["schemas"]["DomainCertificate"];
        homeUrl: string | null;
        notFoundUrl: string | null;
        expiredUrl: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    domains(o?: CallOptions): Promise<{
        id: string;
        hostname: string;
        status: "pending" | "verified";
        records: {
            type: string;
            name: string;
            value: string;
        }[];
        createdAt: components["schemas"]["Timestamp"];
        verifiedAt: number | null;
        checkedAt: number | null;
        reason: string | null;
        certificate: components["schemas"]["DomainCertificate"];
        homeUrl: string | null;
        notFoundUrl: string | null;
        expiredUrl: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }[]>;
    getDomain(domainId: string, o?: CallOptions): Promise<{
        id: string;
        hostname: string;
        status: "pending" | "verified";
        records: {
            type: string;
            name: string;
            value: string;
        }[];
        createdAt: components["schemas"]["Timestamp"];
        verifiedAt: number | null;
        checkedAt: number | null;
        reason: string | null;
        certificate: components["schemas"]["DomainCertificate"];
        homeUrl: string | null;
        notFoundUrl: string | null;
        expiredUrl: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    verifyDomain(domainId: string, o?: CallOptions): Promise<{
        id: string;
        hostname: string;
        status: "pending" | "verified";
        records: {
            type: string;
            name: string;
            value: string;
        }[];
        createdAt: components["schemas"]["Timestamp"];
        verifiedAt: number | null;
        checkedAt: number | null;
        reason: string | null;
        certificate: components["schemas"]["DomainCertificate"];
        homeUrl: string | null;
        notFoundUrl: string | null;
        expiredUrl: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    domainStats(domainId: string, days?: {
        from?: string;
        to?: string;
    }, o?: CallOptions): Promise<{
        from: string;
        to: string;
        home: number;
        notFound: number;
        ended: number;
        days: components["schemas"]["DomainDay"][];
    }>;
    updateDomain(domainId: string, change: Schemas["DomainUpdate"], o?: CallOptions): Promise<{
        id: string;
        hostname: string;
        status: "pending" | "verified";
        records: {
            type: string;
            name: string;
            value: string;
        }[];
        createdAt: components["schemas"]["Timestamp"];
        verifiedAt: number | null;
        checkedAt: number | null;
        reason: string | null;
        certificate: components["schemas"]["DomainCertificate"];
        homeUrl: string | null;
        notFoundUrl: string | null;
        expiredUrl: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    deleteDomain(domainId: string, o?: CallOptions): Promise<void>;
    createVideo(video?: VideoCreate, o?: CallOptions): Promise<{
        videoId: string;
        slug: string;
        uploadUrl: string;
        shareUrl: string;
        uploadUrlExpiresAt?: components["schemas"]["Timestamp"];
        resumableUploadUrl?: components["schemas"]["ResumableUploadUrl"];
        tags: string[];
        externalId: string | null;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    getVideo(videoId: string, o?: CallOptions): Promise<{
        _id: string;
        id: string;
        title: string;
        description: string | null;
        slug: string;
        status: components["schemas"]["VideoStatus"];
        privacy: components["schemas"]["Privacy"];
        shareUrl: string;
        createdAt: components["schemas"]["Timestamp"];
        updatedAt: components["schemas"]["Timestamp"];
        expiresAt: number | null;
        progress: number;
        duration: number | null;
        width: number | null;
        height: number | null;
        posterUrl: string | null;
        playbackUrl: string | null;
        downloadUrl: string | null;
        renditions: components["schemas"]["Rendition"][];
        captions: string[];
        tags: string[];
        externalId: string | null;
        thumbnailTime: number | null;
        takenDown: {
            at: components["schemas"]["Timestamp"];
            reason: string;
        } | null;
        views: number;
        uploadUrl?: string;
        uploadUrlExpiresAt?: components["schemas"]["Timestamp"];
        resumableUploadUrl?: components["schemas"]["ResumableUploadUrl"];
        error?: {
            code: "NOT_A_VIDEO" | "EMPTY_FILE" | "UNSUPPORTED_FORMAT" | "CORRUPT_FILE" | "TOO_LONG" | "TOO_LARGE_DIMENSIONS" | "FILE_TOO_LARGE" | "TRANSCODE_TIMEOUT" | "UPLOAD_EXPIRED" | "INTERNAL";
            message: string;
        };
    }>;
    videos(limit?: number, o?: CallOptions, filter?: VideoFilter): Promise<{
        _id: string;
        title: string;
        slug: string;
        status: components["schemas"]["VideoStatus"];
        privacy: components["schemas"]["Privacy"];
        shareUrl: string;
        createdAt: components["schemas"]["Timestamp"];
        expiresAt: number | null;
        duration: number | null;
        progress: number;
        tags: string[];
        externalId: string | null;
    }[]>;
    videoAccess(videoId: string, o?: CallOptions): Promise<VideoAccess>;
    /** Replaces who may see a video; a password that is left out stays. */
    setVideoAccess(videoId: string, access: VideoAccess & {
        password?: string;
    }, o?: CallOptions): Promise<VideoAccess>;
    /** Takes the picture at a second of the video; null goes back to the service's choice. */
    setThumbnail(videoId: string, time: number | null, o?: CallOptions): Promise<unknown>;
    captions(videoId: string, o?: CallOptions): Promise<{
        language: string;
        name: string;
        updatedAt: number;
    }[]>;
    deleteCaptions(videoId: string, language: string, o?: CallOptions): Promise<void>;
    updateVideo(videoId: string, update: VideoUpdate, o?: CallOptions): Promise<{
        success: true;
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    deleteVideo(videoId: string, o?: CallOptions): Promise<void>;
    putCaptions(videoId: string, language: string, vtt: string, o?: CallOptions): Promise<{
        success: true;
        language: string;
    }>;
    /** Makes a video, sends the file, waits until it plays. */
    uploadVideo(file: Blob, video?: VideoCreate, o?: UploadOptions): Promise<Video>;
    /**
     * Sends a file to a video's address: in parts that survive a broken connection
     * where there is a `resumableUploadUrl`, else whole.
     */
    upload(video: {
        uploadUrl?: string;
        resumableUploadUrl?: string;
    }, file: Blob, o?: UploadOptions): Promise<void>;
    /** Asks until the video plays; throws VideoFailed when it cannot. */
    waitUntilReady(videoId: string, o?: CallOptions & {
        onStatus?: (video: Video) => void;
    }): Promise<Video>;
    account(o?: CallOptions): Promise<{
        id: string;
        name: string;
        plan: components["schemas"]["Plan"];
        defaultDomainId: string | null;
        createdAt: components["schemas"]["Timestamp"];
        limits: {
            requestsPerMinute: number;
            bulkItems: number;
            links: number | null;
            videos: number | null;
            domains: number | null;
            storedBytes: number | null;
        };
        usage: {
            links: number;
            videos: number;
            domains: number;
            storedBytes: number;
        };
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    updateAccount(change: Schemas["AccountSettingsUpdate"], o?: CallOptions): Promise<{
        id: string;
        name: string;
        plan: components["schemas"]["Plan"];
        defaultDomainId: string | null;
        createdAt: components["schemas"]["Timestamp"];
        limits: {
            requestsPerMinute: number;
            bulkItems: number;
            links: number | null;
            videos: number | null;
            domains: number | null;
            storedBytes: number | null;
        };
        usage: {
            links: number;
            videos: number;
            domains: number;
            storedBytes: number;
        };
        ignoredFields?: components["schemas"]["IgnoredFields"];
    }>;
    keys(o?: CallOptions): Promise<{
        id: string;
        name: string;
        prefix: string;
        last4: string;
        scopes: components["schemas"]["Scope"][];
        createdAt: components["schemas"]["Timestamp"];
        lastUsedAt: number | null;
        expiresAt: number | null;
        revokedAt: number | null;
    }[]>;
    createKey(key: KeyCreate, o?: CallOptions): Promise<{
        id: string;
        key: string;
        name: string;
        prefix: string;
        last4: string;
        scopes: components["schemas"]["Scope"][];
        createdAt: components["schemas"]["Timestamp"];
        lastUsedAt: number | null;
        expiresAt: number | null;
        revokedAt: number | null;
    }>;
    rollKey(keyId: string, overlapSeconds?: number, o?: CallOptions): Promise<{
        id: string;
        key: string;
        name: string;
        prefix: string;
        last4: string;
        scopes: components["schemas"]["Scope"][];
        createdAt: components["schemas"]["Timestamp"];
        lastUsedAt: number | null;
        expiresAt: number | null;
        revokedAt: number | null;
    }>;
    revokeKey(keyId: string, o?: CallOptions): Promise<void>;
}
/**
 * Whether a message came from the deployment that gave you `secret` (`whsec_…`), and lately. `body` is the request's
 * body to the last byte: read it before anything parses it.
 */
export declare function verifyWebhook(secret: string, headers: Headers | Record<string, string | string[] | undefined>, body: string | Uint8Array, options?: {
    toleranceSeconds?: number;
    now?: number;
}): Promise<boolean>;
