/**
 * Doctor: all checks of the profile, with advice.
 * @module
 */
import { h, useSignal } from "../../vendor/preact.js";
import { button, div, heading, li, p, span, ul } from "../elements.js";
import { emptyState, failureNotice, PageFrame, useLoaded } from "./frame.js";
import { stateChip, withCode } from "./parts.js";

/** @import { Child } from "../../vendor/preact.d.ts" */
/** @import { CheckView, DoctorView } from "../wire.d.ts" */

const STATES = { ok: "OK", warning: "Warning", fault: "Problem" };
const CHIPS = { ok: "ok", warning: "warning", fault: "error" };

/** @type {(props: object) => Child} */
export function Page() {
  const busy = useSignal(false);
  const { data, failure, reload } = /** @type {import("./frame.js").Loaded<DoctorView>} */ (useLoaded("/web/doctor"));
  const checks = data.value?.checks;
  const again = async () => {
    busy.value = true;
    await reload();
    busy.value = false;
  };
  return h(
    PageFrame,
    {
      title: "Doctor",
      actions: button({ type: "button", disabled: busy.value || !checks, onClick: () => void again() }, "Check again"),
    },
    failureNotice(failure.value),
    checks
      ? [
        p({ key: "summary", class: "lead" }, summarize(checks)),
        ul({ key: "checks", class: "cards" }, ...sortChecks(checks).map(checkCard)),
      ]
      : failure.value
      ? null
      : emptyState("Running all checks…"),
  );
}

/** @type {(checks: CheckView[]) => string} */
function summarize(checks) {
  const faults = checks.filter((check) => check.state === "fault").length;
  const warnings = checks.filter((check) => check.state === "warning").length;
  if (!faults && !warnings) return "Everything is fine.";
  const parts = [
    faults ? `${faults} ${faults === 1 ? "problem" : "problems"}` : "",
    warnings ? `${warnings} ${warnings === 1 ? "warning" : "warnings"}` : "",
  ];
  return `${parts.filter(Boolean).join(" and ")} found.`;
}

/** Sort checks, problems first. @type {(checks: CheckView[]) => CheckView[]} */
function sortChecks(checks) {
  const order = { fault: 0, warning: 1, ok: 2 };
  return [...checks].sort((one, other) => order[one.state] - order[other.state]);
}

/** @type {(check: CheckView) => Child} */
function checkCard(check) {
  return li(
    { key: check.name, class: "work-panel work-stack" },
    div(
      { class: "work-head" },
      heading(2, { class: "check-name" }, check.name),
      span({ class: "push" }, stateChip(CHIPS[check.state], STATES[check.state])),
    ),
    ...check.findings.map((finding, index) =>
      div(
        { key: index, class: "finding" },
        p(finding.state === "ok" ? null : { class: "finding-text" }, withCode(finding.found)),
        finding.repair ? p({ class: "caption" }, withCode(finding.repair)) : null,
      )
    ),
  );
}
