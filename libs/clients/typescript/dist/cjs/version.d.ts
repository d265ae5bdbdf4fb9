/** The version of the API's document that this client was made from. */
export declare const version = "1.3.0";
