/** What the web app uses of Preact and its signals. */
export interface VNode {
  readonly type: unknown;
  readonly props: unknown;
}
export type Child = VNode | string | number | bigint | boolean | null | undefined | Child[];
export type Component<P> = (props: P) => Child;

export function h(type: string, props: object | null, ...children: Child[]): VNode;
export function h<P extends object>(type: Component<P>, props: P & { key?: string | number }, ...children: Child[]): VNode;
export function render(node: Child, parent: Element): void;
export const Fragment: Component<{ children?: Child }>;

export interface Ref<T> {
  current: T;
}
export function useEffect(run: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(run: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): Ref<T>;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];

export interface ReadonlySignal<T> {
  readonly value: T;
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
}
export interface Signal<T> extends ReadonlySignal<T> {
  value: T;
}
export function signal<T>(initial: T): Signal<T>;
export function useSignal<T>(initial: T): Signal<T>;
export function computed<T>(compute: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
