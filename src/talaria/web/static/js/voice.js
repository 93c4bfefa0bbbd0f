/**
 * Voice input: transcribes a recording into the composer. Loaded if the server can transcribe.
 * @module
 */
import { useLayoutEffect, useRef, useSignal } from "../vendor/preact.js";
import { send } from "./attachments.js";
import { button, icon } from "./elements.js";
import { attempt } from "./state.js";

/** @import { Child, Signal } from "../vendor/preact.d.ts" */

const LONGEST_MILLISECONDS = 300_000;

/** Button that starts and ends a recording. @type {(props: { text: Signal<string> }) => Child} */
export function VoiceButton({ text }) {
  const current = useSignal(/** @type {Recording | null} */ (null));
  const busy = useSignal(false);
  const isOpen = useRef(true);
  useLayoutEffect(() => () => { // immediately; other effects end after the next frame
    isOpen.current = false;
    current.peek()?.cancel(); // a recording ends with the composer
  }, []);
  const toggle = async () => {
    const recording = current.peek();
    busy.value = true;
    await attempt(async () => {
      if (!recording) {
        const begun = await record();
        if (isOpen.current) current.value = begun;
        else begun.cancel();
      } else {
        current.value = null;
        text.value = `${text.peek()} ${await recording.transcribe()}`.trim();
      }
    });
    busy.value = false;
  };
  const name = current.value ? "Stop recording" : "Speak";
  return button(
    {
      class: current.value ? "quiet attach recording" : "quiet attach",
      type: "button",
      "aria-label": name,
      title: name,
      "aria-pressed": current.value ? "true" : "false",
      disabled: busy.value,
      onClick: () => void toggle(),
    },
    icon("mic"),
  );
}

/** Running recording, which can be transcribed or cancelled. @typedef {{ transcribe: () => Promise<string>, cancel: () => void }} Recording */

/**
 * Record until the recording is transcribed or cancelled, for at most five minutes.
 * @returns {Promise<Recording>}
 */
async function record() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  /** @type {Blob[]} */
  const pieces = [];
  recorder.ondataavailable = (event) => pieces.push(event.data);
  const ended = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  const stop = () => {
    clearTimeout(timer);
    if (recorder.state === "recording") recorder.stop();
    for (const track of stream.getTracks()) track.stop();
  };
  const timer = setTimeout(stop, LONGEST_MILLISECONDS);
  const transcribe = async () => {
    stop();
    await ended;
    const type = recorder.mimeType || "audio/webm";
    const suffix = type.includes("mp4") ? "m4a" : type.includes("ogg") ? "ogg" : "webm";
    /** @type {{ text: string }} */
    const { text } = await send(new Blob(pieces, { type }), `recording.${suffix}`, "/web/transcriptions");
    return text;
  };
  return { transcribe, cancel: stop };
}
