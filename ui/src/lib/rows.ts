/* Rows of a long list: one outside the window is drawn again every few seconds only, each at a time of its own, so that a
 * second of many readings is no long task. Once it comes into the window it shows what is so then. */
import { Component, type ComponentChildren } from "preact";
import { sameProperties } from "./memo";

/** A row outside the window has one second in so many in which it is drawn again. */
const TURNS = 4;
/** Rows this far outside the window count as inside it, so that scrolling finds them drawn. */
const MARGIN = "25% 0%";

let rows = 0;
const tell = new WeakMap<Element, (seen: boolean) => void>();
let observer: IntersectionObserver | null = null;

function observe(element: Element, told: (seen: boolean) => void): void {
  observer ??= new IntersectionObserver((list) => list.forEach((one) => tell.get(one.target)?.(one.isIntersecting)), { rootMargin: MARGIN });
  tell.set(element, told);
  observer.observe(element);
}

/** A component that draws again when its properties change; outside the window it waits for its turn with a change that
 * `mayWait`. `render` gives its outermost element the ref. It must not read signals itself; components inside it may. */
export function row<P extends object>(
  render: (props: P, ref: (element: Element | null) => void) => ComponentChildren,
  mayWait: (before: P, after: P) => boolean,
): new (props: P) => Component<P> {
  return class Row extends Component<P> {
    private readonly turn = rows++ % TURNS;
    private seen = true;
    private behind = false;
    private element: Element | null = null;

    private readonly place = (element: Element | null): void => {
      if (this.element) observer?.unobserve(this.element);
      this.element = element;
      if (!element) return;
      observe(element, (seen) => {
        this.seen = seen;
        if (seen && this.behind) this.forceUpdate();
      });
    };

    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const before = this.props as P;
      if (sameProperties(before, next)) return false;
      if (this.seen || !mayWait(before, next as P) || Math.floor(Date.now() / 1000) % TURNS === this.turn) return true;
      this.behind = true;
      return false;
    }

    override render(): ComponentChildren {
      this.behind = false;
      return render(this.props, this.place);
    }
  };
}
