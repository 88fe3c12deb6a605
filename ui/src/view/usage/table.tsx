/* The rows of usage as a table, and why there is no energy where there is none. */
import type { ComponentChildren } from "preact";
import type { By } from "../../command/usage";
import type { UsageRow } from "../../lib/api.gen";
import { type Quantity, figure } from "../../lib/format";
import { deviceHref, modelHref } from "../../lib/route";
import { cost, deviceTime, energy, measured } from "../../state/usage";
import { useApp } from "../app-context";

const heads: Record<By, string> = { token: "Token", model: "Model", device: "Device" };

const Amount = ({ of }: { of: Quantity | null }) =>
  of ? (
    <>
      {of.value} <span class="unit">{of.unit}</span>
    </>
  ) : (
    <span class="faint small">not reported</span>
  );

function Name({ row, by }: { row: UsageRow; by: By }) {
  const { models, devices } = useApp().state.value;
  if (by === "model" && models[row.key])
    return (
      <a class="link" href={modelHref(row.key)}>
        {row.name}
      </a>
    );
  if (by === "device" && devices[row.key])
    return (
      <a class="link" href={deviceHref(row.key)}>
        {row.name}
      </a>
    );
  return <>{row.name}</>;
}

const Cell = ({ name, title, children }: { name: string; title?: string; children: ComponentChildren }) => (
  <td data-name={name} class="num" title={title}>
    <span>{children}</span>
  </td>
);

function Row({ row, by, price }: { row: UsageRow; by: By; price: number | null }) {
  const integrated = row.energy_source === "integrated";
  return (
    <tr>
      <th scope="row">
        <Name row={row} by={by} />
      </th>
      <Cell name="Requests">{figure(row.requests)}</Cell>
      <Cell name="Prompt tokens">
        {figure(row.prompt_tokens)}
        {row.cached_tokens > 0 && <span class="faint small"> ({figure(row.cached_tokens)} cached)</span>}
      </Cell>
      <Cell name="Generated">{figure(row.completion_tokens)}</Cell>
      <Cell name="Device time">
        <Amount of={deviceTime(row.device_s)} />
      </Cell>
      <Cell name="Energy" title={integrated ? "power times time" : ""}>
        {integrated && "~"}
        <Amount of={energy(row.energy_joules)} />
      </Cell>
      {by === "device" && (
        <Cell name="Idle">
          <Amount of={energy(row.idle_joules)} />
        </Cell>
      )}
      <Cell name="Cost">{cost(row.energy_joules, price) ?? <span class="faint">–</span>}</Cell>
    </tr>
  );
}

export function UsageTable({ rows, by, price }: { rows: readonly UsageRow[]; by: By; price: number | null }) {
  const { any, integrated } = measured(rows);
  if (rows.length === 0)
    return (
      <div class="empty">
        <h3>Nothing was used in this time</h3>
        <p>Each request to a model is counted here when it ends, whatever API it came by.</p>
      </div>
    );
  return (
    <>
      <div class="table-wrap">
        <table class="list cert-list usage-list">
          <caption class="sr">Usage by {by}</caption>
          <thead>
            <tr>
              <th scope="col">{heads[by]}</th>
              <th scope="col" class="num">
                Requests
              </th>
              <th scope="col" class="num w-prompt">
                Prompt tokens
              </th>
              <th scope="col" class="num">
                Generated
              </th>
              <th scope="col" class="num">
                Device time
              </th>
              <th scope="col" class="num">
                Energy
              </th>
              {by === "device" && (
                <th scope="col" class="num">
                  Idle
                </th>
              )}
              <th scope="col" class="num">
                Cost
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.key} row={row} by={by} price={price} />
            ))}
          </tbody>
        </table>
      </div>
      {!any && (
        <p class="panel-body quiet small">
          Energy is not reported: no device that worked here has a counter of energy or a reading of its power. GPUs have them
          through their drivers. A processor's can be read only where its node may read /sys/class/powercap, mostly as root, and not
          in a virtual machine.
        </p>
      )}
      {any && (
        <p class="panel-body quiet small">
          {by === "device"
            ? "Energy is what a device drew above idle, for requests and other work; idle is what it draws when idle."
            : "Energy is what devices drew for requests above idle."}
          {integrated && " ~: power times time, because a device has no counter of energy."}
        </p>
      )}
    </>
  );
}
