/* Components that are drawn again only when their properties change. */
import { Component, type ComponentChildren } from "preact";

export function sameProperties(before: object, after: object): boolean {
  const old = before as Record<string, unknown>;
  const next = after as Record<string, unknown>;
  for (const key in next) if (next[key] !== old[key]) return false;
  for (const key in old) if (!(key in next)) return false;
  return true;
}

/** A component that draws again only when its properties are other ones, or as `same` says. It must not read signals
 * itself; components inside it may. */
export function memo<P extends object>(
  render: (props: P) => ComponentChildren,
  same: (before: P, after: P) => boolean = sameProperties,
): new (props: P) => Component<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      return !same(this.props as P, next as P);
    }
    override render(): ComponentChildren {
      return render(this.props);
    }
  };
}
