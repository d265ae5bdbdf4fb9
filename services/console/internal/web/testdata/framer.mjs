// Splits a recording as record.ts does, with blobs of the given size, and writes the
// uploaded bytes. Usage: node framer.mjs FRAMER IN OUT SIZE EVERY
import { readFileSync, writeFileSync } from "node:fs";

const [code, from, to, size, every] = process.argv.slice(2);
const { Framer } = await import("data:text/javascript;base64," + readFileSync(code, "base64"));
const bytes = new Uint8Array(readFileSync(from));
const framer = new Framer(from.endsWith(".mp4"));
const parts = [];
const take = (part) => part && parts.push(part);
for (let at = 0, n = 1; at < bytes.length; at += +size, n++) {
  framer.add(bytes.slice(at, at + +size));
  take(framer.full());
  if (n % every === 0) take(framer.filled());
}
parts.push(framer.rest());
writeFileSync(to, Buffer.concat(parts));
console.log(JSON.stringify(parts.map((part) => part.length)));
