/** The version of the contract from which this client was generated. */
export declare const version = "1.3.0";
