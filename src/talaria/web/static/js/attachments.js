/**
 * Attachments of an unsent message: choose, drop, paste or photograph files, upload them immediately and show them.
 * Loaded with the first file.
 * @module
 */
import { signal } from "../vendor/preact.js";
import { filesKey } from "./drafts.js";
import { button, div, icon, img, span } from "./elements.js";
import { describe, request, RequestFailed } from "./server.js";
import { addStyles } from "./pages/frame.js";
import { toast } from "./state.js";

/** @import { Child, Signal } from "../vendor/preact.d.ts" */
/** @import { UploadView } from "./wire.d.ts" */

/** @typedef {{ key: number, name: string, picture: string, upload: UploadView | null, done: Promise<UploadView | null> }} Attached */

const MOST = 20;
let next = 0;

void addStyles("attachments.css");

export class Attachments {
  /** @param {string} id The conversation; empty for a new one. */
  constructor(id) {
    this._id = id;
    /** @type {Signal<Attached[]>} */
    this.files = signal(restore(id));
  }

  /** Open the file dialog, or the camera. @param {boolean} camera */
  choose(camera) {
    const field = document.createElement("input");
    field.type = "file";
    if (camera) {
      field.accept = "image/*";
      field.setAttribute("capture", "environment");
    } else field.multiple = true;
    field.onchange = () => this.add([...(field.files ?? [])]);
    field.click();
  }

  /** @param {File[]} files */
  add(files) {
    const room = MOST - this.files.peek().length;
    if (files.length > room) toast.value = `A message can have ${MOST} files.`;
    this.files.value = [...this.files.peek(), ...files.slice(0, room).map((file) => this._upload(file))];
  }

  /** Wait for all uploads, remove them from the composer and return them. @returns {Promise<UploadView[]>} */
  async take() {
    const files = this.files.peek();
    const uploads = await Promise.all(files.map((one) => one.done));
    const taken = new Set(files.map((one) => one.key));
    this.files.value = this.files.peek().filter((one) => !taken.has(one.key)); // the user may have added more meanwhile
    this._store();
    return uploads.filter((one) => one !== null);
  }

  /** Restore uploads after a failed send. @param {UploadView[]} uploads */
  putBack(uploads) {
    this.files.value = [...uploads.map(fromUpload), ...this.files.peek()];
    this._store();
  }

  /** List of attached files. @returns {Child} */
  view() {
    const files = this.files.value;
    if (!files.length) return null;
    return div(
      { class: "attached", role: "list", "aria-label": "Attached files" },
      ...files.map((one) => this._one(one)),
    );
  }

  /** @param {Attached} one */
  _one(one) {
    return div(
      { key: one.key, role: "listitem", class: one.upload ? "attached-file" : "attached-file loading" },
      one.picture ? img({ src: one.picture, alt: "" }) : null,
      span({ class: "attached-name" }, one.name),
      button(
        { type: "button", class: "quiet", "aria-label": `Remove ${one.name}`, onClick: () => this._remove(one) },
        icon("close"),
      ),
    );
  }

  /** @param {File} file @returns {Attached} */
  _upload(file) {
    const name = file.name || "file";
    const picture = /^image\/(png|jpeg|gif|webp)$/.test(file.type) ? URL.createObjectURL(file) : "";
    const done = send(file, name).then((upload) => {
      this.files.value = this.files.peek().map((one) => one.key === attached.key ? { ...one, upload } : one);
      this._store();
      return upload;
    }, (error) => {
      toast.value = `${name}: ${describe(error)}`;
      this.files.value = this.files.peek().filter((one) => one.key !== attached.key);
      return null;
    });
    /** @type {Attached} */
    const attached = { key: next++, name, picture, upload: null, done };
    return attached;
  }

  /** @param {Attached} one */
  _remove(one) {
    this.files.value = this.files.peek().filter((other) => other.key !== one.key);
    if (one.picture.startsWith("blob:")) URL.revokeObjectURL(one.picture);
    if (one.upload) void request("DELETE", `/web/uploads/${one.upload.id}`).catch(() => null);
    this._store();
  }

  _store() {
    const uploads = this.files.peek().flatMap((one) => (one.upload ? [one.upload] : []));
    if (uploads.length) localStorage.setItem(filesKey(this._id), JSON.stringify(uploads));
    else localStorage.removeItem(filesKey(this._id));
  }
}

/** @type {(upload: UploadView) => Attached} */
function fromUpload(upload) {
  const picture = upload.media_type.startsWith("image/") ? `/web/uploads/${upload.id}` : "";
  return { key: next++, name: upload.name, picture, upload, done: Promise.resolve(upload) };
}

/** @type {(id: string) => Attached[]} */
function restore(id) {
  try {
    return JSON.parse(localStorage.getItem(filesKey(id)) ?? "[]").map(fromUpload);
  } catch {
    return [];
  }
}

/** Upload a file as a raw request body. @type {(file: Blob, name: string, path?: string) => Promise<any>} */
export async function send(file, name, path = "/web/uploads") {
  const query = new URLSearchParams({ name, type: file.type.split(";")[0] ?? "" });
  const options = {
    method: "POST",
    headers: { "content-type": "application/octet-stream", "x-talaria": "web" },
    body: file,
  };
  let reply;
  try {
    reply = await fetch(`${path}?${query}`, options);
  } catch {
    throw new RequestFailed(0, "Talaria can't be reached right now.");
  }
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    throw new RequestFailed(reply.status, answer?.error?.message ?? `The server answered ${reply.status}.`);
  }
  return answer;
}
