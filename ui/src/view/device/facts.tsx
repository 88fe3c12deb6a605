/* Facts of a device: identity and capabilities, the APIs that see it, the processes on it. */
import { figure, memory, rate, sentence, took } from "../../lib/format";
import { backendName, deviceName, isSystem } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { Copied } from "../command-line";
import { Age, Chips, Fact, Figure, MarkIcon, NotReported, Panel } from "../parts";
import { kindOf } from "../overview/cells";
import { PeerRate } from "../topology/peers";
import { rateText } from "./readings";

const yesNo = (value: boolean): string => (value ? t`yes` : t`no`);

export function Identity({ entry }: { entry: DeviceEntry }) {
  const { state } = useApp();
  const { record, reading } = entry;
  const size = (bytes: number | null): string | null =>
    bytes === null ? null : `${memory(bytes).value} ${memory(bytes).unit}`;
  const received = rateText(reading?.pcie_rx_bytes_per_s);
  const sent = rateText(reading?.pcie_tx_bytes_per_s);
  const flags = [record.removable && t`removable`, record.low_power && t`low power`].filter(Boolean).join(", ");
  return (
    <Panel title={t`Identity`}>
      <dl class="facts panel-body">
        <Fact name={t`Vendor`}>{record.vendor}</Fact>
        <Fact name={t`Model`}>{record.model}</Fact>
        <Fact name={t`Family`}>{record.family}</Fact>
        <Fact name={t`Kind`}>
          {kindOf(record)}
          {flags && `, ${flags}`}
        </Fact>
        <Fact name={t`Memory`}>{size(record.memory_bytes)}</Fact>
        {record.memory_budget_bytes !== null && <Fact name={t`Budget`}>{size(record.memory_budget_bytes)}</Fact>}
        <Fact name={t`Bandwidth`}>
          {record.memory_bandwidth_bytes_per_s !== null ? (
            <>
              {rate(record.memory_bandwidth_bytes_per_s).value} {rate(record.memory_bandwidth_bytes_per_s).unit}{" "}
              <span class="faint">{t`measured`}</span>
            </>
          ) : (
            <span class="not-reported">{t`not measured`}</span>
          )}
        </Fact>
        {record.peers.length > 0 && (
          <Fact name={t`Copies to`}>
            {record.peers.map((peer) => (
              <span key={peer.device_id} class="copies-to">
                <PeerRate peer={peer} /> <span class="faint">{t`to`}</span> {deviceName(state.value, peer.device_id)}
                {peer.bytes_per_s === null && <span class="small faint"> {sentence(peer.reason)}</span>}
                {peer.class === "staged" && <span class="warm">{" "}{t`through host memory`}</span>}
              </span>
            ))}
          </Fact>
        )}
        <Fact name={t`Unified`}>{yesNo(record.unified_memory)}</Fact>
        <Fact name={isSystem(record) ? t`Cores` : t`Compute units`}>
          {record.compute_units !== null && figure(record.compute_units)}
        </Fact>
        <Fact name={t`Formats`}>{record.formats.length > 0 && <Chips items={record.formats} />}</Fact>
        {record.features.length > 0 && (
          <Fact name={t`Features`}>
            <Chips items={record.features} />
          </Fact>
        )}
        {!isSystem(record) && (
          <>
            <Fact name={t`Driver`}>{record.driver_version}</Fact>
            <Fact name={t`PCI address`}>{record.pci_address && <Copied text={record.pci_address} />}</Fact>
            <Fact name={t`PCIe now`}>
              {(received || sent) && (
                <>
                  {tx`in ${received ?? <NotReported />}, out ${sent ?? <NotReported />}`}
                </>
              )}
            </Fact>
            <Fact name={t`Fan`}>{reading?.fan_percent != null && `${figure(reading.fan_percent)} %`}</Fact>
            <Fact name={t`ECC errors`}>{reading?.ecc_errors != null && figure(reading.ecc_errors)}</Fact>
            <Fact name="UUID">{record.uuid && <Copied text={record.uuid} />}</Fact>
          </>
        )}
        <Fact name={t`First seen`}>
          <Age at={record.first_seen_at} />
        </Fact>
        <Fact name={t`Id`}>
          <Copied text={record.device_id} />
        </Fact>
      </dl>
    </Panel>
  );
}

/** Every API that sees the device, the one in use first, and whether each passed the check. */
export function ApiTable({ entry }: { entry: DeviceEntry }) {
  const { apis } = entry.record;
  return (
    <Panel title={t`Seen by`} aside={apis.length > 1 ? t`the first is used` : undefined}>
      {apis.length === 0 && <p class="panel-body quiet">{t`No driver reports it now.`}</p>}
      <ul class="apis">
        {apis.map(({ backend, api_version: api, driver_version: driver, verification }) => (
          <li key={backend}>
            <span class="line">
              <b>
                {backendName[backend]}
                {api && <span class="unit"> {api}</span>}
              </b>
              {verification.state === "passed" && (
                <span class="verdict small ok">
                  <MarkIcon mark="ok" />
                  {t`verified`}{verification.duration_ms !== null && t` in ${took(verification.duration_ms)}`}
                </span>
              )}
              {verification.state === "failed" && (
                <span class="verdict small no">
                  <MarkIcon mark="offline" />
                  {t`failed`}
                </span>
              )}
              {verification.state === "pending" && (
                <span class="verdict small">
                  <MarkIcon mark="stale" />
                  {t`not yet verified`}
                </span>
              )}
            </span>
            <span class="line small faint">
              <span>{driver ? t`driver ${driver}` : ""}</span>
              <Age at={verification.at} />
            </span>
            {verification.error && <span class="small crit">{sentence(verification.error)}</span>}
          </li>
        ))}
      </ul>
      <p class="apis-note small faint">
        {t`The check allocates, writes, copies on the device, computes, reads back and compares.`}
      </p>
    </Panel>
  );
}

export function Processes({ entry }: { entry: DeviceEntry }) {
  const { reading, record } = entry;
  const processes = reading?.processes ?? null;
  const sorted = [...(processes ?? [])].sort((a, b) => (b.memory_bytes ?? -1) - (a.memory_bytes ?? -1));
  return (
    <Panel
      title={t`Processes`}
      aside={processes && processes.length > 0 ? t`${processes.length} on this device` : undefined}
    >
      {processes === null && (
        <p class="panel-body">
          <NotReported />{" "}
          <span class="quiet small">
            {isSystem(record)
              ? t`The CPU's processes are not listed.`
              : t`The driver does not tell which processes use this device.`}
          </span>
        </p>
      )}
      {processes !== null && processes.length === 0 && <p class="panel-body quiet">{t`No process uses this device now.`}</p>}
      {sorted.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <th scope="col">{t`Process`}</th>
              <th scope="col" class="num">
                {t`Pid`}
              </th>
              <th scope="col" class="num">
                {t`Memory`}
              </th>
            </tr>
          </thead>
          <tbody>
            {sorted.map((one) => (
              <tr key={one.pid}>
                <td>{one.name ?? <NotReported />}</td>
                <td class="num">{one.pid}</td>
                <td class="num">
                  {one.memory_bytes === null ? <NotReported /> : <Figure {...memory(one.memory_bytes)} />}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
