// The page that makes calls. The server has rendered a form for each operation. This
// script reads the fields of a form, makes the call and shows the answer below it.

const key = document.getElementById("key");
const frame = document.getElementById("answer");

// Showing more text than this makes tabs slow.
const shown = 100_000;

function request(form) {
  let path = form.dataset.path;
  let body;
  const query = new URLSearchParams();
  const headers = {};
  if (key.value) headers.Authorization = `Bearer ${key.value.trim()}`;
  for (const { name, value, localName, dataset } of form.querySelectorAll("[data-in]")) {
    if (value === "") continue; // empty fields are not sent
    switch (dataset.in) {
      case "path": path = path.replace(`{${name}}`, () => encodeURIComponent(value)); break;
      case "query": for (const line of localName === "textarea" ? value.split("\n").filter(Boolean) : [value]) query.append(name, line); break;
      case "header": headers[name] = value; break;
      case "body": body = value; headers["Content-Type"] = dataset.type;
    }
  }
  return { url: location.origin + path + (query.size ? `?${query}` : ""), method: form.dataset.method, headers, body };
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl({ url, method, headers, body }) {
  const parts = [`curl -X ${method} ${quote(url)}`];
  for (const [name, value] of Object.entries(headers)) {
    parts.push(name === "Authorization" ? '-H "Authorization: Bearer $LINKREEL_API_KEY"' : `-H ${quote(`${name}: ${value}`)}`);
  }
  if (body !== undefined) parts.push(`--data-raw ${quote(body)}`);
  return parts.join(" \\\n  ");
}

function readable(text, type) {
  if (/^application\/(problem\+)?json/.test(type)) {
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // Empty or truncated: show it unchanged.
    }
  }
  return text.length > shown ? `${text.slice(0, shown)}\n… and ${text.length - shown} more characters` : text;
}

const dataURL = (blob) => new Promise((done) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.readAsDataURL(blob);
});

async function send(form) {
  if (form.ariaBusy) return; // ignore a second click while the call is in flight
  const say = form.querySelector("output");
  const call = request(form);
  const answer = frame.content.firstElementChild.cloneNode(true);
  const part = (name) => answer.querySelector(`[data-part=${name}]`);
  form.ariaBusy = "true";
  form.querySelector(".answer")?.remove();
  say.textContent = "Sending…";
  part("call").textContent = curl(call);
  try {
    const began = performance.now();
    // Only the key authenticates the call. A session in this browser must not.
    const got = await fetch(call.url, { ...call, credentials: "omit", cache: "no-store" });
    const blob = await got.blob();
    say.textContent = `${got.status} in ${Math.round(performance.now() - began)} ms`;
    const type = got.headers.get("Content-Type") ?? "";
    part("headers").textContent = [...got.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    if (type.startsWith("image/")) {
      const picture = new Image();
      picture.alt = "The response as an image";
      picture.src = await dataURL(blob);
      part("body").parentElement.replaceWith(picture);
    } else {
      part("body").textContent = readable(await blob.text(), type) || "(empty)";
    }
  } catch (error) {
    say.textContent = "No answer";
    part("headers").closest("details").remove();
    part("body").textContent = `The call failed: ${error.message}`;
  }
  form.append(answer);
  form.ariaBusy = null;
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target);
});

document.addEventListener("change", ({ target }) => {
  if (target.name !== "example") return;
  target.form.elements.body.value = target.value;
});

// The address's fragment names the operation that was opened last. Older addresses have
// its group before it: #/Links/listLinks.
function reveal() {
  const named = document.getElementById(location.hash.match(/\w*$/)[0]);
  if (!named?.matches(".op")) return;
  named.open = true;
  named.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
document.addEventListener("toggle", ({ target }) => {
  if (target.open && target.id) history.replaceState(null, "", `#${target.id}`);
}, true);
