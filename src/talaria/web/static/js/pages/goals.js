/**
 * Goals of all conversations: state, budgets and verdicts, with actions to set, pause, resume and clear them.
 * @module
 */
import { h, useEffect, useRef, useSignal } from "../../vendor/preact.js";
import { get, post, request } from "../server.js";
import { button, div, form, heading, label, li, ol, p, span, textarea, ul } from "../elements.js";
import { attempt, me } from "../state.js";
import { acceptInOrder } from "./request_order.js";
import { ActionButton } from "./controls.js";
import { formatDuration, formatMoney, formatNumber } from "./format.js";
import { CardPage, emptyState, reloadAfter, useLive } from "./frame.js";
import { bar, conversationLink, fold, moment, stateChip, surfaceLabel } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { GoalBudget, GoalView, VerdictView } from "../wire.d.ts" */

const STATES = { active: "Active", waiting: "Waiting", paused: "Paused", done: "Reached" };
const HINT =
  "Conditions are lines of their own: verify: make test · constraints: … · stop when: … · budget: 10 turns, $2";

/** @type {(props: object) => Child} */
export function Page() {
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<GoalView[]>} */ (
    useLive("/web/goals", "goals")
  );
  const goals = data.value;
  return h(CardPage, {
    title: "Goals",
    add: "New goal",
    failure: failure.value,
    form: (onClose) =>
      h(GoalForm, {
        text: "",
        action: "Set the goal",
        onSave: async (text) => {
          await post("/web/goals", { text });
          onClose();
          await reload();
        },
        onCancel: onClose,
      }),
    content: (onOpen) => [
      goals && !goals.length && onOpen
        ? emptyState(
          "A goal keeps the agent working, turn after turn, until a judge decides that it is done.",
          button({ type: "button", onClick: onOpen }, "Set the first goal"),
        )
        : null,
      goals?.length
        ? ul({ class: "cards" }, ...goals.map((goal) => h(GoalCard, { key: goal.session_id, goal, reload })))
        : null,
    ],
  });
}

/** @type {(props: { text: string, action: string, onSave: (text: string) => Promise<void>, onCancel: () => void }) => Child} */
function GoalForm({ text, action, onSave, onCancel }) {
  const typed = useSignal(text);
  const busy = useSignal(false);
  return form(
    {
      class: "work-panel work-stack",
      onSubmit: async (event) => {
        event.preventDefault();
        busy.value = true;
        await attempt(() => onSave(typed.peek()));
        busy.value = false;
      },
    },
    label({ for: "goal-text" }, "What should the agent achieve?"),
    textarea({
      id: "goal-text",
      rows: 4,
      maxlength: 20_000,
      "aria-describedby": "goal-hint",
      value: typed.value,
      placeholder: "All tests of the parser pass\nverify: make test\nbudget: 10 turns",
      onInput: (event) => (typed.value = /** @type {HTMLTextAreaElement} */ (event.target).value),
    }),
    p({ class: "caption", id: "goal-hint" }, HINT),
    div(
      { class: "button-row" },
      button({ type: "submit", class: "primary", disabled: busy.value || !typed.value.trim() }, action),
      button({ type: "button", class: "quiet", onClick: onCancel }, "Cancel"),
    ),
  );
}

/** @type {(props: { goal: GoalView, reload: () => Promise<void> }) => Child} */
function GoalCard({ goal, reload }) {
  const editing = useSignal(false);
  const address = `/web/goals/${goal.session_id}`;
  const changing = reloadAfter(reload);
  if (editing.value) {
    return li(
      null,
      h(GoalForm, {
        text: goalText(goal),
        action: "Replace the goal",
        onSave: async (text) => {
          await request("PUT", address, { text });
          editing.value = false;
          await reload();
        },
        onCancel: () => (editing.value = false),
      }),
    );
  }
  return li(
    { class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      stateChip(goal.state, STATES[goal.state]),
      goal.running ? span({ class: "chip" }, "A turn is running") : null,
      span(
        { class: "caption push" },
        conversationLink(goal.session_id, goal.title),
        ` · ${whose(goal)}`,
        moment(goal.set_at),
      ),
    ),
    heading(2, { class: "goal-text" }, goal.goal),
    goal.note
      ? p({ class: "notice" }, goal.state === "waiting" ? `Waiting: ${goal.note}` : `Paused because ${goal.note}`)
      : null,
    conditions(goal),
    goal.budgets.length ? div({ class: "budgets" }, ...goal.budgets.map(budgetView)) : null,
    goal.last ? p({ class: "verdict-line" }, verdictChip(goal.last), goal.last.reason) : null,
    h(Verdicts, { session: goal.session_id, count: `${goal.last?.at ?? ""}` }),
    div(
      { class: "button-row" },
      goal.state === "active"
        ? h(ActionButton, { label: "Pause", onRun: changing(() => post(`${address}/pause`, {})) })
        : null,
      goal.state === "paused" || goal.state === "waiting"
        ? h(ActionButton, {
          label: goal.state === "waiting" ? "Continue now" : "Resume",
          class: "primary",
          onRun: changing(() => post(`${address}/resume`, {})),
        })
        : null,
      button({ type: "button", class: "quiet", onClick: () => (editing.value = true) }, "Change"),
      h(ActionButton, {
        class: "danger quiet",
        label: "Clear",
        confirm: "Clear this goal?",
        onRun: changing(() => request("DELETE", address)),
      }),
    ),
  );
}

/** @type {(goal: GoalView) => string} */
const whose = (goal) => `${me.value?.owner && goal.owner ? `${goal.owner} · ` : ""}${surfaceLabel(goal.source)} · `;

/** @type {(goal: GoalView) => Child} */
function conditions(goal) {
  const { contract } = goal;
  const rows = [
    ["Verify", contract.verify],
    ["Constraints", contract.constraints],
    ["Scope", contract.scope],
    ["Stop when", contract.stop_when],
    ...goal.subgoals.map((text, index) => [`Criterion ${index + 1}`, text]),
  ].filter(([, text]) => text);
  if (!rows.length) return null;
  return ul(
    { class: "facts" },
    ...rows.map(([name, text]) => li({ key: name }, span({ class: "fact-name" }, name), span(null, text))),
  );
}

/** @type {(budget: GoalBudget) => Child} */
function budgetView(budget) {
  const format = {
    turns: (/** @type {number} */ value) => `${value}`,
    tokens: formatNumber,
    microdollars: formatMoney,
    seconds: formatDuration,
  }[budget.unit];
  const name = { turns: "Turns", tokens: "Tokens", microdollars: "Cost", seconds: "Time" }[budget.unit];
  const text = `${format(budget.used)} of ${format(budget.limit)}`;
  return div(
    { key: budget.unit, class: "budget" },
    p({ class: "budget-head" }, span(null, name), span({ class: "caption" }, text)),
    bar(budget.used / budget.limit, `${name}: ${text}`),
  );
}

/** @type {(verdict: VerdictView) => Child} */
const verdictChip = (verdict) => stateChip(verdict.verdict, verdict.verdict);

/** Verdicts so far, loaded when they are expanded. @type {(props: { session: string, count: string }) => Child} */
function Verdicts({ session, count }) {
  const open = useSignal(false);
  const found = useSignal(/** @type {VerdictView[] | null} */ (null));
  const startRequest = useRef(acceptInOrder()).current;
  useEffect(() => {
    const isNewer = startRequest();
    if (!open.value) return;
    void attempt(async () => {
      /** @type {VerdictView[]} */
      const verdicts = await get(`/web/goals/${session}/verdicts`);
      if (isNewer()) found.value = verdicts;
    });
  }, [open.value, count]);
  return fold(
    open,
    ["Verdicts"],
    found.value
      ? found.value.length
        ? ol(
          { class: "verdicts" },
          ...found.value.map((one) =>
            li(
              { key: one.at },
              verdictChip(one),
              span(
                { class: "verdict-text" },
                one.reason,
                one.exit_code === null ? "" : ` (exit code ${one.exit_code})`,
              ),
              span({ class: "caption push" }, moment(one.at)),
            )
          ),
        )
        : p({ class: "fold-body caption" }, "No turn has been judged yet.")
      : null,
  );
}

/** Source text of a goal. @type {(goal: GoalView) => string} */
function goalText(goal) {
  const { contract } = goal;
  /** @type {[string, string | undefined][]} */
  const lines = [
    ["verify", contract.verify],
    ["constraints", contract.constraints],
    ["scope", contract.scope],
    ["stop when", contract.stop_when],
  ];
  const written = lines.flatMap(([name, text]) => (text ? text.split("\n").map((line) => `${name}: ${line}`) : []));
  return [goal.goal, ...written].join("\n");
}
