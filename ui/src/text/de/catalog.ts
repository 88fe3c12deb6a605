/* German for what catalog/models.json says of its models. */
export default {
  "trying out whether everything works: very small and fast, answers are often wrong": "zum Ausprobieren, ob alles läuft: sehr klein und schnell, Antworten sind oft falsch",
  "short answers and simple tasks on machines without a GPU; can reason before it answers": "kurze Antworten und einfache Aufgaben auf Rechnern ohne GPU; kann vor der Antwort nachdenken",
  "summaries and rewriting of short texts, on machines without a GPU": "Zusammenfassen und Umschreiben kurzer Texte auf Rechnern ohne GPU",
  "everyday conversation, summaries and calls of tools on small machines": "Alltagsgespräche, Zusammenfassungen und Werkzeugaufrufe auf kleinen Rechnern",
  "conversation, code and calls of tools in little memory; very long texts": "Gespräche, Code und Werkzeugaufrufe mit wenig Speicher; sehr lange Texte",
  "reasoning, code and tools in little memory; long texts cost little, since most layers keep no keys and values":
    "Nachdenken, Code und Werkzeuge mit wenig Speicher; lange Texte kosten wenig, da die meisten Schichten keine Schlüssel und Werte behalten",
  "general conversation and summaries": "allgemeine Gespräche und Zusammenfassungen",
  "reasoning, code and calls of tools": "Nachdenken, Code und Werkzeugaufrufe",
  "reasoning and calls of tools; fast for its size, since a token goes through 3.6 B of its 21 B parameters":
    "Nachdenken und Werkzeugaufrufe; schnell für seine Größe, da ein Token durch 3,6 Mrd. seiner 21 Mrd. Parameter geht",
  "conversation, code and tools, and very long texts; fast for its size, since a token goes through 3.3 B of its parameters":
    "Gespräche, Code und Werkzeuge, sehr lange Texte; schnell für seine Größe, da ein Token durch 3,3 Mrd. seiner Parameter geht",
  "search by meaning in many languages (/v1/embeddings); does not chat": "Suche nach Bedeutung in vielen Sprachen (/v1/embeddings); chattet nicht",
  "search by meaning in English texts (/v1/embeddings), in very little memory; does not chat":
    "Suche nach Bedeutung in englischen Texten (/v1/embeddings) mit sehr wenig Speicher; chattet nicht",
  "English": "Englisch",
  "English, German, French, Italian, Portuguese, Hindi, Spanish, Thai": "Englisch, Deutsch, Französisch, Italienisch, Portugiesisch, Hindi, Spanisch, Thai",
  "more than 100": "mehr als 100",
  "201 languages and dialects": "201 Sprachen und Dialekte",
  "8 languages": "8 Sprachen",
} as const;
