/**
 * Voice input: a recording becomes text in the composer. Loaded with the first recording.
 * @module
 */
import { send } from "./attachments.js";

const LONGEST_MILLISECONDS = 300_000;

/**
 * Record until the result is called; it returns the text.
 * @returns {Promise<() => Promise<string>>}
 */
export async function record() {
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
