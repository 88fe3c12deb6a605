/* A device's heat policy, in words. Pure. */
import type { ThermalPolicy } from "../lib/api.gen";
import { figure as grouped } from "../lib/format";
import { t } from "../text/text";

export type HeatAction = ThermalPolicy["actions"][number];

/** In the order in which the server takes them. */
export const heatActions: readonly { readonly action: HeatAction; readonly name: string; readonly what: string }[] = [
  { action: "limit", name: t`Less load`, what: t`Models get less time on it: they rest between two steps.` },
  {
    action: "step_down",
    name: t`Smaller format`,
    what: t`A model in use whose device stays held back goes on with its weights in fewer bits, if it permits that and is faster then.`,
  },
  {
    action: "move",
    name: t`Move models`,
    what: t`A model in use whose device stays held back is loaded on a cooler device, if it is faster there.`,
  },
  { action: "pause", name: t`Pause`, what: t`If it gets hotter still, models on it wait until it is cool.` },
];

export const bounds = { least: 1, most: 40 };

/** What is wrong with a policy that somebody has typed; null: nothing. */
export function policyFault(margin: number, resume: number, actions: readonly HeatAction[]): string | null {
  for (const [name, value] of [[t`The margin`, margin], [t`The way to cool`, resume]] as const)
    if (!(value >= bounds.least && value <= bounds.most))
      return t`${name} is between ${bounds.least} and ${bounds.most} °C.`;
  if (actions.length > 0 && !actions.includes("limit") && !actions.includes("pause"))
    return t`Models change and move only where the device is held back: tick Less load or Pause, too.`;
  return null;
}

const figure = (value: number): string => grouped(value, Number.isInteger(value) ? 0 : 1);

/** "85 °C, 5 °C under its limit" */
export const targetText = (policy: ThermalPolicy, limit: number | null): string =>
  limit === null
    ? t`${figure(policy.margin_celsius)} °C under its limit, which it does not report`
    : t`${figure(limit - policy.margin_celsius)} °C, ${figure(policy.margin_celsius)} °C under its limit`;

export const resumeText = (policy: ThermalPolicy, limit: number | null): string =>
  limit === null
    ? t`${figure(policy.resume_celsius)} °C under that`
    : `${figure(limit - policy.margin_celsius - policy.resume_celsius)} °C`;
