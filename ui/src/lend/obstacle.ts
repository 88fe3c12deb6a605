/* Why a browser cannot lend its GPU, in words for the person who holds it; and what can be done. Pure. */
import { t } from "../text/text";

export interface Obstacle {
  title: string;
  text: string;
  /** What to do, one thing a line. */
  steps: readonly string[];
  /** Whether installing the cluster's certificate would help: then the page says how. */
  certificate: boolean;
}

export interface Surroundings {
  secure: boolean;
  /** navigator.gpu is there. */
  webgpu: boolean;
  /** It gave an adapter. */
  adapter: boolean;
  system: string | null;
  browser: string | null;
}

const UPDATES: Record<string, string> = {
  iOS: t`Update to iOS 26 or later and open the page in Safari.`,
  macOS: t`Use Safari 26 or later, Chrome, or Firefox 145 or later.`,
  Android: t`Use Chrome 121 or later, on Android 12 or later.`,
  Windows: t`Use Chrome or Edge 113 or later, or Firefox 141 or later.`,
  ChromeOS: t`Use Chrome 113 or later.`,
  Linux: t`Use Chrome 144 or later; on some GPUs it must be allowed in chrome://flags (Unsafe WebGPU Support).`,
};

/** Null: nothing is in the way. */
export function findObstacle({ secure, webgpu, adapter, system, browser }: Surroundings): Obstacle | null {
  if (!secure)
    return {
      title: t`This browser does not trust the connection`,
      text: t`Browsers give a page the GPU only over a connection that they trust. This device does not know the certificate of your cluster yet.`,
      steps: [],
      certificate: true,
    };
  if (!webgpu)
    return {
      title: t`${browser ?? t`This browser`} has no WebGPU`,
      text: t`The GPU is lent through WebGPU, which this browser does not have, or which is switched off.`,
      steps: [UPDATES[system ?? ""] ?? t`Use a current version of Chrome, Edge, Safari or Firefox.`],
      certificate: false,
    };
  if (!adapter)
    return {
      title: t`The browser offers no GPU`,
      text: t`This browser has WebGPU, but it gives no access to a GPU. It may not trust the driver, or hardware acceleration may be off.`,
      steps: [t`Switch on hardware acceleration in the browser's settings.`, t`Update the driver of the GPU.`, UPDATES[system ?? ""] ?? t`Try another browser.`],
      certificate: false,
    };
  return null;
}

/** For a page whose WebSocket never opened. `isSecureContext` stays true after a certificate warning was clicked away. */
export const DISTRUST =
  t`If a certificate warning was clicked away to open this page, the browser may still refuse the connection on which the GPU is lent. Then install the certificate of the cluster:`;

/** How a device comes to trust the cluster's own authority, one step a line. */
export function trustSteps(system: string | null): readonly string[] {
  switch (system) {
    case "iOS":
      return [
        t`Open the certificate (the button below) in Safari and allow the profile to be downloaded.`,
        t`Settings, General, VPN & Device Management: install the profile. Compare the fingerprint first.`,
        t`Settings, General, About, Certificate Trust Settings: switch on full trust for it.`,
        t`Open the address again.`,
      ];
    case "Android":
      return [
        t`Save the certificate (the button below).`,
        t`Settings, Security, Encryption & credentials, Install a certificate, CA certificate: choose the file. Compare the fingerprint first.`,
        t`Open the address again in Chrome.`,
      ];
    case "macOS":
      return [
        t`Save the certificate (the button below) and open it: Keychain Access asks where it should go. Choose “login”.`,
        t`Double-click it in Keychain Access, compare the fingerprint, and set Trust to “Always Trust”.`,
        t`Open the address again.`,
      ];
    case "Windows":
      return [
        t`Save the certificate (the button below) as exogpu.crt and open it.`,
        t`Compare the fingerprint, then Install Certificate, Current User, Trusted Root Certification Authorities.`,
        t`Open the address again.`,
      ];
    default:
      return [
        t`Save the certificate (the button below) and compare its fingerprint.`,
        t`Add it to the authorities that the browser trusts (Settings, Privacy and security, Certificates).`,
        t`Open the address again.`,
      ];
  }
}
