/**
 * Skills: instructions that the agent reads when it needs them. They can be created, edited and switched off here.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { button, div, label, li, p, pre, section, span, textarea, ul } from "../elements.js";
import { renderMarkdown } from "../markdown.js";
import { describe, get, post, request } from "../server.js";
import { attempt, toast } from "../state.js";
import { ActionButton, panel, plainForm, Switch, textField, textOf } from "./controls.js";
import { emptyState, failureNotice } from "./frame.js";
import { fold, withCode } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { SkillAuditView, SkillText, SkillView, SwitchedTools } from "../wire.d.ts" */

/** @type {(props: { skills: SkillView[], reload: () => Promise<void> }) => Child} */
export function Skills({ skills, reload }) {
  const adding = useSignal(false);
  const done = async () => {
    adding.value = false;
    await reload();
  };
  return panel(
    "Skills",
    "Instructions that the agent reads when it needs them.",
    skills.length
      ? ul({ class: "cards" }, ...skills.map((one) => h(SkillCard, { key: one.name, one, reload })))
      : emptyState("There are no skills yet. Write one, or ask the agent to write one down."),
    adding.value ? h(NewSkill, { onSaved: done, onCancel: () => (adding.value = false) }) : div(
      { class: "actions-row" },
      button({ type: "button", onClick: () => (adding.value = true) }, "New skill"),
    ),
  );
}

/** @type {(props: { one: SkillView, reload: () => Promise<void> }) => Child} */
function SkillCard({ one, reload }) {
  const skill = useSignal(/** @type {SkillText | null} */ (null));
  const open = useSignal(false);
  const editing = useSignal(false);
  const audit = useSignal(/** @type {SkillAuditView | null} */ (null));
  const path = `/web/skills/${encodeURIComponent(one.name)}`;
  /** @type {(on: boolean, digest?: string) => Promise<void>} */
  const switchTo = async (on, digest = "") => {
    /** @type {SwitchedTools} */
    const { notes } = await post(`${path}/switch`, { on, digest });
    audit.value = null;
    toast.value = notes.join(" ");
    await reload();
  };
  /** Switch the skill on or off. The user first reviews the programs of an installed skill. @param {boolean} on */
  const toggle = async (on) => {
    if (on && one.installed) audit.value = await get(`${path}/audit`);
    else await switchTo(on);
  };
  useEffect(() => {
    if (!open.value || skill.peek()) return;
    void attempt(async () => (skill.value = await get(path)));
  }, [open.value]);
  /** @type {(saved: SkillText) => Promise<void>} */
  const showSaved = async (saved) => {
    skill.value = saved;
    editing.value = false;
    await reload();
  };
  const shown = skill.value;
  return li(
    { class: "card block" },
    div(
      { class: "inline spread" },
      div(
        { class: "grow" },
        p({ class: "card-title" }, one.name),
        p({ class: "caption" }, one.about),
        one.problem ? p({ class: "caption" }, withCode(one.problem)) : null,
      ),
      h(Switch, { label: `Skill ${one.name}`, on: one.enabled, onSwitch: (on) => void attempt(() => toggle(on)) }),
    ),
    audit.value ? auditView(one.name, audit.value, switchTo, () => (audit.value = null)) : null,
    fold(
      open,
      [span({ class: "offscreen" }, `${one.name}: `), "Text"],
      editing.value && shown
        ? h(SkillEditor, {
          name: one.name,
          before: shown.source,
          onSaved: showSaved,
          onCancel: () => (editing.value = false),
        })
        : div(
          { class: "fold-body stack" },
          pre({ class: "wrap", tabIndex: 0, "aria-label": `Text of ${one.name}` }, shown?.text ?? "Loading …"),
          shown?.source
            ? div(
              { class: "actions-row" },
              button(
                { type: "button", "aria-label": `Edit ${one.name}`, onClick: () => (editing.value = true) },
                "Edit",
              ),
            )
            : shown
            ? p({ class: "caption" }, "It isn't in the profile's folder. Edit it where it is.")
            : null,
        ),
    ),
  );
}

/** @type {(name: string, seen: SkillAuditView, onSwitch: (on: boolean, digest: string) => Promise<void>, onCancel: () => void) => Child} */
function auditView(name, seen, onSwitch, onCancel) {
  return section(
    { class: "fold-body stack", "aria-label": `What ${name} would run` },
    div({ class: "markdown" }, ...renderMarkdown(seen.audit)),
    div(
      { class: "actions-row" },
      h(ActionButton, { label: `Enable ${name}`, class: "primary", onRun: () => onSwitch(true, seen.digest) }),
      button({ type: "button", onClick: onCancel }, "Leave it off"),
    ),
  );
}

/** @type {(props: { onSaved: () => Promise<void>, onCancel: () => void }) => Child} */
function NewSkill({ onSaved, onCancel }) {
  const name = useSignal("");
  const about = useSignal("");
  const body = useSignal("");
  const failure = useSignal("");
  const save = async () => {
    const slug = name.peek().trim();
    const line = about.peek().replace(/\s+/g, " ").trim();
    const text = `---\nname: ${slug}\ndescription: ${line}\n---\n\n${body.peek().trim()}\n`;
    try {
      await request("PUT", `/web/skills/${encodeURIComponent(slug)}`, { text });
      toast.value = `New conversations know the skill ${slug}.`;
      await onSaved();
    } catch (error) {
      failure.value = describe(error);
    }
  };
  return plainForm(
    "card block stack",
    save,
    failureNotice(failure.value),
    textField("skill-name", "Name: lower-case letters, digits and hyphens", name.value, (text) => (name.value = text), {
      placeholder: "water-plants",
      maxlength: 64,
    }),
    textField("skill-about", "When to use it", about.value, (text) => (about.value = text), { maxlength: 1024 }),
    div(
      { class: "field" },
      label({ for: "skill-body" }, "What to do"),
      textarea({
        id: "skill-body",
        rows: 8,
        value: body.value,
        onInput: (event) => (body.value = textOf(event)),
      }),
    ),
    div(
      { class: "actions-row" },
      button(
        {
          type: "submit",
          class: "primary",
          disabled: !name.value.trim() || !about.value.trim() || !body.value.trim(),
        },
        "Create the skill",
      ),
      button({ type: "button", onClick: onCancel }, "Cancel"),
    ),
  );
}

/** @type {(props: { name: string, before: string, onSaved: (saved: SkillText) => Promise<void>, onCancel: () => void }) => Child} */
function SkillEditor({ name, before, onSaved, onCancel }) {
  const text = useSignal(before);
  const failure = useSignal("");
  const id = `skill-text-${name}`;
  const save = async () => {
    try {
      await onSaved(await request("PUT", `/web/skills/${encodeURIComponent(name)}`, { text: text.peek(), before }));
    } catch (error) {
      failure.value = describe(error);
    }
  };
  return plainForm(
    "fold-body stack",
    save,
    failureNotice(failure.value),
    div(
      { class: "field" },
      label({ for: id }, `SKILL.md of ${name}`),
      textarea({
        id,
        class: "mono",
        rows: 14,
        spellcheck: false,
        value: text.value,
        onInput: (event) => (text.value = textOf(event)),
      }),
    ),
    div(
      { class: "actions-row" },
      button({ type: "submit", class: "primary", disabled: !text.value.trim() || text.value === before }, "Save"),
      button({ type: "button", onClick: onCancel }, "Cancel"),
    ),
  );
}
