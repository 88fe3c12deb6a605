/* An answer as it is meant: Markdown in blocks, code with its own button to copy it. Nothing of it becomes HTML. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { partsOf } from "../../state/conversation/highlight";
import { type Block, blocksOf, plainBlocksOf } from "../../state/conversation/markdown";
import type { Span } from "../../state/conversation/spans";
import { t } from "../../text/text";
import { CopyButton } from "../command-line";

const Spans = ({ spans }: { spans: readonly Span[] }) => <>{spans.map(spanView)}</>;

function spanView(span: Span, i: number): ComponentChildren {
  switch (span.kind) {
    case "text":
      return span.text;
    case "code":
    case "math":
      return (
        <code key={i} class={span.kind}>
          {span.text}
        </code>
      );
    case "strong":
      return (
        <strong key={i}>
          <Spans spans={span.spans} />
        </strong>
      );
    case "em":
      return (
        <em key={i}>
          <Spans spans={span.spans} />
        </em>
      );
    case "strike":
      return (
        <s key={i}>
          <Spans spans={span.spans} />
        </s>
      );
    case "link":
      return (
        <a key={i} class="link" href={span.href} title={span.href} target="_blank" rel="noopener noreferrer">
          <Spans spans={span.spans} />
        </a>
      );
  }
}

const Code = ({ block }: { block: Block & { kind: "code" } }) => (
  <div class="code-block" role="group" aria-label={block.language ? t`Code, ${block.language}` : t`Code`}>
    <p class="code-head">
      <span>{block.language}</span>
      {!block.open && <CopyButton class="text-btn" text={block.text} label={t`Copy the code`} />}
    </p>
    <pre class="code" tabIndex={0}>
      {partsOf(block.text, block.language).map((part, i) =>
        part.kind === "plain" ? (
          part.text
        ) : (
          <span key={i} class={`t-${part.kind}`}>
            {part.text}
          </span>
        ),
      )}
    </pre>
  </div>
);

const Table = ({ block }: { block: Block & { kind: "table" } }) => (
  <div class="table-wrap" tabIndex={0} role="region" aria-label={t`Table`}>
    <table class="said">
      <thead>
        <tr>
          {block.head.map((cell, i) => (
            <th key={i} scope="col" class={block.aligns[i]}>
              <Spans spans={cell} />
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {block.rows.map((row, i) => (
          <tr key={i}>
            {row.map((cell, j) => (
              <td key={j} class={block.aligns[j]}>
                <Spans spans={cell} />
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);

function List({ block }: { block: Block & { kind: "list" } }) {
  const items = block.items.map((item, i) => (
    <li key={i}>
      <BlockList blocks={item} />
    </li>
  ));
  return block.start === null ? <ul>{items}</ul> : <ol start={block.start}>{items}</ol>;
}

function blockView(block: Block, i: number): ComponentChildren {
  switch (block.kind) {
    case "text":
      return (
        <p key={i}>
          <Spans spans={block.spans} />
        </p>
      );
    case "heading":
      return (
        <p key={i} class={`said-h h${Math.min(block.level, 4)}`} role="heading" aria-level={Math.min(block.level + 2, 6)}>
          <Spans spans={block.spans} />
        </p>
      );
    case "code":
      return <Code key={i} block={block} />;
    case "math":
      return (
        <pre key={i} class="code math" tabIndex={0}>
          {block.text}
        </pre>
      );
    case "rule":
      return <hr key={i} />;
    case "quote":
      return (
        <blockquote key={i}>
          <BlockList blocks={block.blocks} />
        </blockquote>
      );
    case "list":
      return <List key={i} block={block} />;
    case "table":
      return <Table key={i} block={block} />;
  }
}

const BlockList = ({ blocks }: { blocks: readonly Block[] }) => <>{blocks.map(blockView)}</>;

/** `plain`: what a person wrote, as it is. It is read anew only when it changes. */
export function Markdown({ text, plain }: { text: string; plain: boolean }) {
  return useMemo(() => <BlockList blocks={plain ? plainBlocksOf(text) : blocksOf(text.trimStart())} />, [text, plain]);
}
