/* A component that draws again only when one of its properties is another one. It must not read signals itself;
 * components inside it may. */
import { Component, type ComponentChildren } from "preact";

export function memo<P extends object>(render: (props: P) => ComponentChildren): new (props: P) => Component<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const before = this.props as Record<string, unknown>;
      const after = next as Record<string, unknown>;
      for (const key in after) if (after[key] !== before[key]) return true;
      for (const key in before) if (!(key in after)) return true;
      return false;
    }
    override render(): ComponentChildren {
      return render(this.props);
    }
  };
}
