/**
 * Files of conversations: those that the agent received, and those that it created or sent.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { a, button, div, icon, img, li, p, span, time, ul } from "../elements.js";
import { followLink } from "../state.js";
import { emptyState, failureNotice, PageFrame, useLoaded } from "./frame.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { FileRow } from "../wire.d.ts" */
/** @import { Loaded } from "./frame.js" */

const KINDS = [["", "All"], ["sent", "From the agent"], ["given", "From people"], ["pictures", "Pictures"]];

/** @type {(props: object) => Child} */
export function Page() {
  /** @type {Loaded<FileRow[]>} */
  const { data, failure } = useLoaded("/web/files");
  const kind = useSignal("");
  const files = (data.value ?? []).filter((one) =>
    kind.value === "pictures"
      ? one.media_type.startsWith("image/")
      : !kind.value || one.sent === (kind.value === "sent")
  );
  return h(
    PageFrame,
    { title: "Files" },
    failureNotice(failure.value),
    div(
      { class: "tabs", role: "group", "aria-label": "Kind of files" },
      ...KINDS.map(([value = "", text]) =>
        button(
          {
            type: "button",
            class: "quiet",
            "aria-pressed": kind.value === value ? "true" : "false",
            onClick: () => (kind.value = value),
          },
          text,
        )
      ),
    ),
    data.value && !files.length ? emptyState("There are no files here.") : null,
    ul({ class: "cards" }, ...files.map((one) => li({ key: one.id, class: "card file-row" }, fileRow(one)))),
  );
}

/** @type {(file: FileRow) => Child} */
function fileRow(file) {
  const href = `/web/files/${file.id}`;
  const isPicture = /^image\/(png|jpeg|gif|webp)$/.test(file.media_type);
  return [
    isPicture
      ? a({ href, target: "_blank", rel: "noopener" }, img({ src: href, alt: "", loading: "lazy" }))
      : span({ class: "file-icon" }, icon("file")),
    div(
      { class: "file-about" },
      isPicture
        ? a({ class: "card-title", href, target: "_blank", rel: "noopener" }, file.name)
        : a({ class: "card-title", href, download: file.name }, file.name),
      p(
        { class: "caption" },
        `${size(file.size)} · `,
        time({ datetime: file.at }, new Date(file.at).toLocaleString()),
        ` · ${file.sent ? "from the agent" : "from you"} in `,
        a(
          { href: `/c/${file.session_id}`, onClick: (event) => followLink(event, `/c/${file.session_id}`) },
          file.session_title || "a conversation",
        ),
      ),
    ),
  ];
}

/** @type {(bytes: number) => string} */
function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1_000_000 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}
