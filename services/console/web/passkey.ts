// Passkeys: requests a response from the device, adds it to the form, and sends the form.

type Bytes = { [name: string]: unknown };

const decode = (text: string) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const encode = (bytes: ArrayBuffer) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

// The options are JSON with base64url text where the browser expects bytes.
function options(json: any) {
  json.challenge = decode(json.challenge);
  if (json.user) json.user.id = decode(json.user.id);
  for (const list of [json.excludeCredentials, json.allowCredentials]) for (const c of list ?? []) c.id = decode(c.id);
  return json;
}

function answer(c: PublicKeyCredential) {
  const r = c.response as AuthenticatorAttestationResponse & AuthenticatorAssertionResponse;
  const response: Bytes = { clientDataJSON: encode(r.clientDataJSON) };
  if (r.attestationObject) {
    response.attestationObject = encode(r.attestationObject);
    response.transports = r.getTransports?.() ?? [];
  } else {
    response.authenticatorData = encode(r.authenticatorData);
    response.signature = encode(r.signature);
    response.userHandle = r.userHandle ? encode(r.userHandle) : undefined;
  }
  return JSON.stringify({ id: c.id, rawId: encode(c.rawId), type: c.type, response, clientExtensionResults: c.getClientExtensionResults() });
}

for (const form of document.querySelectorAll<HTMLFormElement>("form[data-passkey]")) {
  form.addEventListener("submit", async (event) => {
    const field = form.elements.namedItem("credential") as HTMLInputElement;
    if (field.value) return; // this is the second submit; see below
    event.preventDefault();
    const problem = form.querySelector(".error")!;
    problem.textContent = "";
    try {
      const csrf = (form.elements.namedItem("csrf") as HTMLInputElement).value;
      const begun = await fetch(form.dataset.begin!, { method: "POST", body: new URLSearchParams({ csrf }) });
      if (!begun.ok) throw new Error(`${begun.status}`);
      const publicKey = options(await begun.json());
      const made = form.dataset.passkey === "create" ? await navigator.credentials.create({ publicKey }) : await navigator.credentials.get({ publicKey });
      field.value = answer(made as PublicKeyCredential);
      form.requestSubmit();
    } catch (error) {
      field.value = "";
      problem.textContent = (error as Error).message;
    }
  });
}
