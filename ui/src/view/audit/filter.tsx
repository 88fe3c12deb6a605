/* The filter of entries: words, kind of action, result, device; and whether new ones are added. */
import type { AuditFilter } from "../../command/audit";
import { deviceLabel, sortedDevices } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";

const actions: [string, string][] = [
  ["", t`every action`],
  ["auth.", t`log-ins`],
  ["session.", t`sessions`],
  ["token.", t`tokens`],
  ["ticket.", t`tickets`],
  ["join.", t`joining`],
  ["node.", t`nodes`],
  ["device.", t`devices`],
  ["memory.", t`memory`],
  ["compute.", t`kernels`],
  ["certificate.", t`certificates`],
  ["server.", t`the server`],
];

/** The filter with one part replaced; an empty part goes. */
function withPart(filter: AuditFilter, part: keyof AuditFilter, value: string): AuditFilter {
  const { [part]: _, ...rest } = filter;
  return value === "" ? rest : { ...rest, [part]: value };
}

export function FilterBar({
  filter,
  change,
  follow,
  setFollow,
}: {
  filter: AuditFilter;
  change: (filter: AuditFilter) => void;
  follow: boolean;
  setFollow: (follow: boolean) => void;
}) {
  const { state } = useApp();
  const devices = sortedDevices(state.value);
  const set = (part: keyof AuditFilter) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    change(withPart(filter, part, event.currentTarget.value));
  return (
    <form class="audit-filter" role="search" onSubmit={(event) => event.preventDefault()}>
      <input
        type="search"
        data-filter
        placeholder={t`Who, what, from where`}
        aria-label={t`Filter entries`}
        aria-keyshortcuts="/"
        maxLength={128}
        value={filter.text ?? ""}
        onInput={set("text")}
      />
      <select aria-label={t`Action`} value={filter.action ?? ""} onChange={set("action")}>
        {actions.map(([value, word]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
      </select>
      <select aria-label={t`Result`} value={filter.outcome ?? ""} onChange={set("outcome")}>
        <option value="">{t`every result`}</option>
        <option value="ok">{t`done`}</option>
        <option value="failed">{t`refused or failed`}</option>
      </select>
      <select aria-label={t`Device`} value={filter.device_id ?? ""} onChange={set("device_id")}>
        <option value="">{t`every device`}</option>
        {devices.map(({ record }) => (
          <option key={record.device_id} value={record.device_id}>
            {deviceLabel(state.value, record.device_id)}
          </option>
        ))}
      </select>
      <label class="check">
        <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
        <span>{t`Follow`}</span>
      </label>
    </form>
  );
}
