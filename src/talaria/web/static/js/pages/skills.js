/**
 * Skills: instructions that the agent reads when it needs them. They can be written, changed and switched off here.
 * @module
 */
import { h, useEffect, useSignal } from "../../vendor/preact.js";
import { button, div, label, li, p, pre, span, textarea, ul } from "../elements.js";
import { describe, get, request } from "../server.js";
import { attempt, toast } from "../state.js";
import { panel, plainForm, Switch, textField, textOf } from "./controls.js";
import { emptyState, failureNotice } from "./frame.js";
import { fold } from "./parts.js";
import { useSettings } from "./settings_data.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { SkillText, SkillView } from "../wire.d.ts" */

const DISABLED = "tools.disabled_skills";

/** @type {(props: { skills: SkillView[], reload: () => Promise<void> }) => Child} */
export function Skills({ skills, reload }) {
  const adding = useSignal(false);
  const settings = useSettings();
  /** @type {(name: string, on: boolean) => Promise<void>} */
  const toggle = async (name, on) => {
    const others = settings.list(DISABLED).filter((one) => one !== name);
    await settings.save({ [DISABLED]: on ? others : [...others, name] });
    await reload();
  };
  const done = async () => {
    adding.value = false;
    await reload();
  };
  return panel(
    "Skills",
    "Instructions that the agent reads when it needs them.",
    skills.length
      ? ul({ class: "cards" }, ...skills.map((one) => h(SkillCard, { key: one.name, one, toggle, reload })))
      : emptyState("There are no skills yet. Write one, or ask the agent to write one down."),
    adding.value ? h(NewSkill, { onSaved: done, onCancel: () => (adding.value = false) }) : div(
      { class: "actions-row" },
      button({ type: "button", onClick: () => (adding.value = true) }, "New skill"),
    ),
  );
}

/** @type {(props: { one: SkillView, toggle: (name: string, on: boolean) => Promise<void>, reload: () => Promise<void> }) => Child} */
function SkillCard({ one, toggle, reload }) {
  const skill = useSignal(/** @type {SkillText | null} */ (null));
  const open = useSignal(false);
  const editing = useSignal(false);
  useEffect(() => {
    if (!open.value || skill.peek()) return;
    void attempt(async () => (skill.value = await get(`/web/skills/${encodeURIComponent(one.name)}`)));
  }, [open.value]);
  /** @type {(saved: SkillText) => Promise<void>} */
  const take = async (saved) => {
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
        one.problem ? p({ class: "caption" }, one.problem) : null,
      ),
      h(Switch, { label: `Skill ${one.name}`, on: one.enabled, onSwitch: (on) => void toggle(one.name, on) }),
    ),
    fold(
      open,
      [span({ class: "offscreen" }, `${one.name}: `), "Text"],
      editing.value && shown
        ? h(SkillEditor, {
          name: one.name,
          before: shown.source,
          onSaved: take,
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
    () => void save(),
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
    () => void save(),
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
