/* The way to the other language, by its own name, so that whoever reads only that one finds it. */
import { writeLanguage } from "../lib/prefs";
import { language } from "../text/language";

/** A page has one language while it is open: it is loaded again. */
export function LanguageButton({ reload = () => location.reload() }: { reload?: () => void }) {
  const other = language === "en" ? "de" : "en";
  const change = (): void => {
    writeLanguage(other);
    reload();
  };
  return (
    <button class="text-btn" type="button" lang={other} translate={false} onClick={change}>
      {other === "de" ? "Deutsch" : "English"}
    </button>
  );
}
