// Verifies the message on standard input with the library of Standard Webhooks:
// {"secret", "headers", "body"}. Prints "verified" or why it is not.
import { Webhook } from "./standardwebhooks.mjs";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { secret, headers, body } = JSON.parse(text);
try {
  new Webhook(secret).verify(body, headers);
  console.log("verified");
} catch (err) {
  console.log(err.message);
}
