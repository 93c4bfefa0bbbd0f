/**
 * Form of a job: a schedule in plain English, a preview of its next five runs, and options.
 * @module
 */
import { useEffect, useSignal } from "../../vendor/preact.js";
import { describe, get, newId, post, request } from "../server.js";
import { button, details, div, form, input, label, li, ol, p, span, strong, summary, textarea } from "../elements.js";
import { attempt, me } from "../state.js";

/** @import { Child, Signal } from "../../vendor/preact.d.ts" */
/** @import { JobPreview, JobView } from "../wire.d.ts" */

const PREVIEW_DELAY = 250;
const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** @typedef {{ job: JobView | null, onDone: () => Promise<void>, onCancel: () => void }} JobFormProps */

/** Form for a new or existing job. @type {(props: JobFormProps) => Child} */
export function JobForm({ job, onDone, onCancel }) {
  const text = useSignal("");
  const prompt = useSignal(job?.prompt ?? "");
  const options = useOptions(job);
  const busy = useSignal(false);
  const draft = useSignal(newId());
  const zone = options.zone.value.trim();
  const preview = usePreview(text.value, zone);
  const save = async () => {
    if (job) await request("PATCH", `/web/schedules/${job.id}`, changes(job, text.peek(), prompt.peek(), options));
    else await post("/web/schedules", { id: draft.peek(), prompt: text.peek(), ...filled(options) });
    await onDone();
  };
  const ready = job ? preview.failure.value === "" : preview.found.value !== null;
  return form(
    {
      class: "work-panel work-stack",
      onSubmit: async (event) => {
        event.preventDefault();
        busy.value = true;
        await attempt(save);
        busy.value = false;
      },
    },
    label({ for: "job-text" }, job ? `New time (now ${job.schedule})` : "When, and what?"),
    input({
      id: "job-text",
      type: "text",
      maxlength: 20_000,
      autocomplete: "off",
      "aria-describedby": "job-preview",
      placeholder: job ? job.schedule : "every weekday 9:00 summarise my inbox",
      value: text.value,
      onInput: (event) => (text.value = valueOf(event)),
    }),
    previewView(preview.found.value, preview.failure.value, !job),
    job ? field("job-prompt", "Prompt", prompt, { long: true }) : null,
    details(
      { class: "options" },
      summary(null, "More options"),
      div(
        { class: "work-fields" },
        field("job-name", "Name", options.name, { hint: "Taken from the prompt if empty" }),
        field("job-zone", "Time zone", options.zone, { hint: BROWSER_ZONE }),
        me.value?.owner
          ? field("job-deliver", "Reports to", options.deliver, { hint: "origin, home, nowhere or telegram:Family" })
          : null,
        me.value?.owner ? field("job-model", "Model", options.model, { hint: "The default model" }) : null,
        me.value?.owner
          ? field("job-script", "Script", options.script, { hint: "Its output is added to the prompt" })
          : null,
        field("job-times", "Number of runs", options.times, { hint: "No limit" }),
      ),
    ),
    div(
      { class: "button-row" },
      button({ type: "submit", class: "primary", disabled: busy.value || !ready }, job ? "Save" : "Schedule"),
      button({ type: "button", class: "quiet", onClick: onCancel }, "Cancel"),
    ),
  );
}

/** @type {(job: JobView | null) => Record<"name" | "zone" | "deliver" | "model" | "script" | "times", Signal<string>>} */
function useOptions(job) {
  return {
    name: useSignal(job?.name ?? ""),
    zone: useSignal(job?.zone ?? ""),
    deliver: useSignal(job?.deliver.join(", ") ?? ""),
    model: useSignal(job?.model ?? ""),
    script: useSignal(job?.script ?? ""),
    times: useSignal(job?.times_left ? String(job.times_left) : ""),
  };
}

/** Preview of a schedule, loaded a moment after it was typed. @type {(text: string, zone: string) => { found: Signal<JobPreview | null>, failure: Signal<string> }} */
function usePreview(text, zone) {
  const found = useSignal(/** @type {JobPreview | null} */ (null));
  const failure = useSignal("");
  useEffect(() => {
    found.value = null;
    failure.value = "";
    if (!text.trim()) return;
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const reply = await get(`/web/schedule-preview?${new URLSearchParams({ text, zone })}`);
        if (current) {
          found.value = reply.preview;
          failure.value = reply.problem;
        }
      } catch (error) {
        if (current) failure.value = describe(error);
      }
    }, PREVIEW_DELAY);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, zone]);
  return { found, failure };
}

/** @type {(preview: JobPreview | null, failure: string, needsPrompt: boolean) => Child} */
function previewView(preview, failure, needsPrompt) {
  const runs = preview?.next_told.length === 1 ? "It runs once:" : "The next five runs:";
  return div(
    { class: "preview", id: "job-preview", "aria-live": "polite" },
    failure ? p({ class: "caption failure" }, failure) : null,
    preview
      ? [
        p(
          null,
          strong(null, preview.schedule === "once" ? "Once" : preview.schedule),
          preview.prompt ? `: ${preview.prompt}` : "",
        ),
        needsPrompt && !preview.prompt ? p({ class: "caption failure" }, "Say what to do, after the time.") : null,
        p({ class: "caption" }, runs),
        ol({ class: "next-runs" }, ...preview.next_told.map((time) => li({ key: time }, span(null, time)))),
      ]
      : null,
  );
}

/** @type {(id: string, name: string, value: Signal<string>, options?: { hint?: string, long?: boolean }) => Child} */
function field(id, name, value, { hint = "", long = false } = {}) {
  const attributes = {
    id,
    maxlength: 20_000,
    placeholder: hint,
    value: value.value,
    onInput: (/** @type {InputEvent} */ event) => (value.value = valueOf(event)),
  };
  return div(
    { class: long ? "work-field long" : "work-field", key: id },
    label({ for: id }, name),
    long ? textarea({ ...attributes, rows: 3 }) : input({ ...attributes, type: "text", autocomplete: "off" }),
  );
}

/** @type {(event: Event) => string} */
const valueOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/** Options that are filled in. @type {(options: Record<string, Signal<string>>) => Record<string, unknown>} */
function filled(options) {
  const entries = Object.entries(options).map(([name, value]) => [name, value.peek().trim()]).filter(([, value]) =>
    value
  );
  return Object.fromEntries(entries.map(([name, value]) => [name, convert(name ?? "", value ?? "")]));
}

/** Changed fields of a job. @type {(job: JobView, when: string, prompt: string, options: Record<string, Signal<string>>) => Record<string, unknown>} */
function changes(job, when, prompt, options) {
  /** @type {Record<string, string>} */
  const before = {
    name: job.name,
    zone: job.zone,
    deliver: job.deliver.join(", "),
    model: job.model,
    script: job.script,
    times: job.times_left ? String(job.times_left) : "",
  };
  const changed = Object.entries(options).filter(([name, value]) => value.peek().trim() !== before[name]);
  return {
    ...(when.trim() ? { when: when.trim() } : {}),
    ...(prompt !== job.prompt ? { prompt } : {}),
    ...Object.fromEntries(changed.map(([name, value]) => [name, convert(name, value.peek().trim())])),
  };
}

/** @type {(name: string, value: string) => unknown} */
function convert(name, value) {
  if (name === "deliver") return value.split(",").map((one) => one.trim()).filter(Boolean);
  return name === "times" ? Number.parseInt(value || "0", 10) || 0 : value;
}
