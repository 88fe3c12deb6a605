/* Words of the contract that pages show as they are: states, kinds and the like. */
import { t } from "./text";

const words: Readonly<Record<string, string>> = {
  // devices and nodes
  idle: t`idle`,
  computing: t`computing`,
  "used by others": t`used by others`,
  throttled: t`throttled`,
  resting: t`resting`,
  draining: t`draining`,
  offline: t`offline`,
  online: t`online`,
  pending: t`pending`,
  unsupported: t`unsupported`,
  stale: t`stale`,
  full: t`full`,
  partial: t`partial`,
  experimental: t`experimental`,
  normal: t`normal`,
  warm: t`warm`,
  critical: t`critical`,
  // tokens and certificates
  good: t`good`,
  "in use": t`in use`,
  "expires soon": t`expires soon`,
  expired: t`expired`,
  revoked: t`revoked`,
  "renewal is due": t`renewal is due`,
  // links
  up: t`up`,
  degraded: t`degraded`,
  down: t`down`,
  // loaded models
  starting: t`starting`,
  running: t`running`,
  paused: t`paused`,
  stopping: t`stopping`,
  failed: t`failed`,
  // what changed
  joined: t`joined`,
  found: t`found`,
  changed: t`changed`,
  // what is known of a model of the catalogue
  revision: t`revision`,
  bytes: t`bytes`,
  licence: t`licence`,
  languages: t`languages`,
  geometry: t`geometry`,
  parameters: t`parameters`,
  // shares of a device's score
  compute: t`compute`,
  memory: t`memory`,
  network: t`network`,
  thermal: t`heat`,
  bandwidth: t`bandwidth`,
  // alerts and the log
  info: t`info`,
  warning: t`warning`,
  error: t`error`,
  debug: t`debug`,
};

/** A word of the contract in the page's language; one that is not known stays, without underscores. */
export const word = (of: string): string => words[of] ?? of.replaceAll("_", " ");

const supports: Readonly<Record<string, string>> = {
  full: t`full support`,
  partial: t`partial support`,
  experimental: t`experimental support`,
  unsupported: t`unsupported support`,
};
export const supportWord = (of: string): string => supports[of] ?? word(of);
