// The documentation page: Swagger UI over the contract of this deployment.
// Nothing here asks another host, and no style or script is written inline, so
// the page runs under a policy without any exception.
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

const root = document.documentElement;
const button = document.getElementById("theme");
const preference = window.matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("linkreel-theme"); } catch { return null; } };

function paint() {
  const dark = (remembered() ?? (preference.matches ? "dark" : "light")) === "dark";
  root.classList.toggle("dark-mode", dark);
  button.setAttribute("aria-pressed", String(dark));
}
button.addEventListener("click", () => {
  try { localStorage.setItem("linkreel-theme", root.classList.contains("dark-mode") ? "light" : "dark"); } catch { /* not remembered */ }
  paint();
});
preference.addEventListener("change", paint);
paint();

document.getElementById("origin").textContent = location.origin;

// The operator's calls live on an address that a reader of this page cannot reach.
function publicPart(spec) {
  const paths = Object.entries(spec.paths).filter(([path]) => !path.startsWith("/admin/"));
  return { ...spec, paths: Object.fromEntries(paths), tags: spec.tags.filter((tag) => tag.name !== "Operator") };
}

try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`the contract answered ${answer.status}`);
  SwaggerUI({
    spec: publicPart(await answer.json()),
    domNode: document.getElementById("reference"),
    deepLinking: true,
    validatorUrl: null,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    defaultModelRendering: "model",
    displayRequestDuration: true,
    tryItOutEnabled: true,
    requestSnippetsEnabled: true,
    syntaxHighlight: { activated: true, theme: "agate" },
  });
} catch (error) {
  const note = document.createElement("p");
  note.className = "wait";
  note.setAttribute("role", "alert");
  note.textContent = `The contract could not be loaded (${error.message}).`;
  document.getElementById("reference").replaceChildren(note);
}
