// @ts-check
// Browsers load no modules from files: says so, where everything else would be silent.
if (location.protocol === "file:") {
  const german = (navigator.language || "").toLowerCase().startsWith("de");
  const problem = document.getElementById("problem");
  if (problem) problem.hidden = false;
  if (problem)
    problem.textContent = german
      ? "Browser führen diese Seite nicht als Datei aus. Starte im Ordner „python3 -m http.server“ und öffne http://localhost:8000."
      : "Browsers do not run this page as a file. Start “python3 -m http.server” in its folder and open http://localhost:8000.";
}
