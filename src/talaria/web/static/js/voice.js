/**
 * Voice input: a recording becomes text in the composer. Loaded where recordings can be transcribed.
 * @module
 */
import { useSignal } from "../vendor/preact.js";
import { send } from "./attachments.js";
import { button, icon } from "./elements.js";
import { attempt } from "./state.js";

/** @import { Child, Signal } from "../vendor/preact.d.ts" */

const LONGEST_MILLISECONDS = 300_000;

/** Speak instead of typing. @type {(props: { text: Signal<string> }) => Child} */
export function VoiceButton({ text }) {
  const finish = useSignal(/** @type {(() => Promise<string>) | null} */ (null));
  const busy = useSignal(false);
  const toggle = async () => {
    const stop = finish.peek();
    busy.value = true;
    await attempt(async () => {
      if (!stop) finish.value = await record();
      else {
        finish.value = null;
        text.value = `${text.peek()} ${await stop()}`.trim();
      }
    });
    busy.value = false;
  };
  const name = finish.value ? "Stop recording" : "Speak";
  return button(
    {
      class: finish.value ? "quiet attach recording" : "quiet attach",
      type: "button",
      "aria-label": name,
      title: name,
      "aria-pressed": finish.value ? "true" : "false",
      disabled: busy.value,
      onClick: () => void toggle(),
    },
    icon("mic"),
  );
}

/**
 * Record until the result is called; it returns the text.
 * @returns {Promise<() => Promise<string>>}
 */
async function record() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  /** @type {Blob[]} */
  const pieces = [];
  recorder.ondataavailable = (event) => pieces.push(event.data);
  const ended = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  const timer = setTimeout(() => recorder.state === "recording" && recorder.stop(), LONGEST_MILLISECONDS);
  return async () => {
    clearTimeout(timer);
    if (recorder.state === "recording") recorder.stop();
    await ended;
    for (const track of stream.getTracks()) track.stop();
    const type = recorder.mimeType || "audio/webm";
    const suffix = type.includes("mp4") ? "m4a" : type.includes("ogg") ? "ogg" : "webm";
    /** @type {{ text: string }} */
    const { text } = await send(new Blob(pieces, { type }), `recording.${suffix}`, "/web/transcriptions");
    return text;
  };
}
