/* Chooses a model's chat template: the file's own, or a named one. */
import type { ChatTemplate, ModelArchitecture } from "../../lib/api.gen";
import { t } from "../../text/text";

// A record, so that none is left out.
const named: Record<ChatTemplate, true> = {
  llama3: true,
  "llama3.1": true,
  "llama3.2": true,
  chatml: true,
  "qwen1.5": true,
  qwen2: true,
  "qwen2.5": true,
  qwen3: true,
  "qwen3-instruct": true,
  "qwen3-thinking": true,
  qwq: true,
  smollm2: true,
  llama2: true,
  mistral: true,
  "mistral-v7": true,
  "deepseek-r1": true,
  "deepseek-r1-0528": true,
  "deepseek-v3": true,
  zephyr: true,
};
const templates = Object.keys(named) as ChatTemplate[];

export function TemplateKnob({
  of,
  value,
  change,
}: {
  of: ModelArchitecture;
  value: ChatTemplate | "";
  change: (value: ChatTemplate | "") => void;
}) {
  return (
    <label class="knob">
      <span class="label">{t`Chat template`}</span>
      <select value={value} onChange={(event) => change(event.currentTarget.value as typeof value)}>
        <option value="">{of.chat_template ? t`${of.chat_template}, the file's` : t`none known: completes text`}</option>
        {templates
          .filter((name) => name !== of.chat_template)
          .map((name) => (
            <option key={name} value={name} translate={false}>
              {name}
            </option>
          ))}
      </select>
    </label>
  );
}
