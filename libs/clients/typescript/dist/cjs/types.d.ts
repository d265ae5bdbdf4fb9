/** Types that convert those of the API document to types for arguments of callers. */
import type { components, operations } from "./schema.js";
type Moment = components["schemas"]["Instant"];
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
/** The names of T, without those that requests cannot set. */
type Settable<T> = {
    [K in keyof T]-?: Same<{
        [P in K]: T[K];
    }, {
        readonly [P in K]: T[K];
    }> extends true ? never : K;
}[keyof T];
/** A request body: a time may be a `Date`, and fields that only the service sets are omitted. */
export type Input<T> = T extends readonly (infer I)[] ? Input<I>[] : T extends object ? {
    [K in keyof Pick<T, Settable<T>>]: InputField<T[K]>;
} : T;
type InputField<V> = [Moment] extends [V] ? V | Date : Input<V>;
/** The query of an operation; a repeatable parameter accepts one or several values. */
export type Query<Op extends keyof operations> = QueryFields<NonNullable<operations[Op]["parameters"]["query"]>>;
type QueryFields<Q> = {
    [K in keyof Q]: NonNullable<Q[K]> extends readonly (infer I)[] ? I | I[] | undefined : Q[K] | (K extends "at" ? Date : never);
};
/** A list that is read page by page. */
export interface Page<T> {
    data: T[];
    hasMore?: boolean;
    nextCursor?: string | number | null;
}
/** A line of an export: a record and its type. */
export interface ExportLine {
    type: string;
    data: unknown;
}
export {};
