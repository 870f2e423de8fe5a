// Asks at once for the modules of pages with questions, which otherwise come one level of imports after another.
// A classic script: it runs while the page itself still arrives. tests/viewer/test_app.py checks the names.

const PARQUET = [
  'alp', 'assemble', 'bloom', 'column', 'constants', 'convert', 'datapage', 'delta', 'encoding', 'filter', 'geoparquet',
  'index', 'indexes', 'metadata', 'plain', 'plan', 'query', 'read', 'rowgroup', 'scan', 'schema', 'snappy', 'thrift',
  'utils', 'variant', 'wkb', 'xxhash',
].map(name => `vendor/hyparquet/src/${name}.js`)

const OF_QUESTIONS = ['answers.js', 'parts.js', 'search.js', 'vendor/fzstd/index.mjs', ...PARQUET]

const MODULES = {
  question: ['pages/question.js', 'evidence.js', 'figures.js', ...OF_QUESTIONS],
  questions: ['pages/questions.js', ...OF_QUESTIONS],
  flips: ['pages/flips.js', ...OF_QUESTIONS],
}

const SCRIPTS = { question: ['vendor/d3/d3.min.js', 'vendor/plot/plot.umd.min.js'] }

const page = location.hash.split(/[/?]/)[1]
for (const [rel, files] of [['modulepreload', MODULES[page]], ['preload', SCRIPTS[page]]]) {
  for (const href of files ?? []) document.head.append(Object.assign(document.createElement('link'), { rel, href, as: 'script' }))
}
