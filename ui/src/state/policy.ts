/* A device's heat policy, in words. Pure. */
import type { ThermalPolicy } from "../lib/api.gen";

export type HeatAction = ThermalPolicy["actions"][number];

/** In the order in which the server takes them. */
export const heatActions: readonly { readonly action: HeatAction; readonly name: string; readonly what: string }[] = [
  { action: "limit", name: "Less load", what: "Models get less time on it: they rest between two steps." },
  {
    action: "step_down",
    name: "Smaller format",
    what: "A model in use whose device stays held back goes on with its weights in fewer bits, if it permits that and is faster then.",
  },
  {
    action: "move",
    name: "Move models",
    what: "A model in use whose device stays held back is loaded on a cooler device, if it is faster there.",
  },
  { action: "pause", name: "Pause", what: "If it gets hotter still, models on it wait until it is cool." },
];

export const bounds = { least: 1, most: 40 };

/** What is wrong with a policy that somebody has typed; null: nothing. */
export function policyFault(margin: number, resume: number, actions: readonly HeatAction[]): string | null {
  for (const [name, value] of [["The margin", margin], ["The way to cool", resume]] as const)
    if (!(value >= bounds.least && value <= bounds.most))
      return `${name} is between ${bounds.least} and ${bounds.most} °C.`;
  if (actions.length > 0 && !actions.includes("limit") && !actions.includes("pause"))
    return "Models change and move only where the device is held back: tick Less load or Pause, too.";
  return null;
}

const figure = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(1));

/** "85 °C, 5 °C under its limit" */
export const targetText = (policy: ThermalPolicy, limit: number | null): string =>
  limit === null
    ? `${figure(policy.margin_celsius)} °C under its limit, which it does not report`
    : `${figure(limit - policy.margin_celsius)} °C, ${figure(policy.margin_celsius)} °C under its limit`;

export const resumeText = (policy: ThermalPolicy, limit: number | null): string =>
  limit === null
    ? `${figure(policy.resume_celsius)} °C under that`
    : `${figure(limit - policy.margin_celsius - policy.resume_celsius)} °C`;
