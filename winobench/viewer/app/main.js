// The frame around the pages: the address chooses the page.

import { Component, html, link, render, useEffect, useState } from './base.js'

// First part of the address -> module of the page, and how it names the parts that follow.
const PAGES = {
  '': ['runs', []],
  run: ['run', ['slug', 'part']],
  leaderboard: ['leaderboard', []],
  compare: ['compare', ['baseline', 'others']],
  questions: ['questions', ['slug', 'task']],
  question: ['question', ['slug', 'task', 'row']],
  flips: ['flips', ['baseline', 'other']],
  bias: ['bias', ['slug']],
  images: ['images', ['slug']],
}

const THEMES = ['auto', 'light', 'dark']

function parsed(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  let parts
  try {
    parts = path.split('/').map(decodeURIComponent)
  } catch {
    parts = ['?']
  }
  return { parts, parameters: Object.fromEntries(new URLSearchParams(query)) }
}

function useHash() {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const changed = () => setHash(location.hash)
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])
  return hash
}

// A page whose code fails says so, and the others still work.
class Guard extends Component {
  static getDerivedStateFromError(error) {
    return { error }
  }

  componentDidCatch(error) {
    console.warn(error)
  }

  render({ children }, { error }) {
    if (!error) return children
    return html`<p class="problem" role="alert">This page cannot be shown: ${error.message}</p>`
  }
}

function Page() {
  const hash = useHash()
  const { parts, parameters } = parsed(hash)
  const [name, names] = PAGES[parts[0]] ?? []
  const [page, setPage] = useState({})
  useEffect(() => {
    if (!name) return
    import(`./pages/${name}.js`).then(
      module => setPage({ name, show: module.default }),
      () => setPage({ name, show: () => html`<p class="problem" role="alert">The page could not be loaded: reload it.</p>` }),
    )
  }, [name])
  useEffect(() => {
    document.querySelector('main')?.focus({ preventScroll: true })
    scrollTo(0, 0)
  }, [parts.join('/')])
  if (!name) return html`<p class="problem" role="alert">This address has no page. <a href="#/">Show the runs.</a></p>`
  if (page.name !== name) return html`<p class="waiting" role="status">Loading…</p>`
  const given = Object.fromEntries(names.map((key, place) => [key, parts[place + 1]]))
  return html`<${Guard} key=${parts.join('/')}><${page.show} ...${given} parameters=${parameters} /><//>`
}

function stored() {
  try {
    return localStorage.getItem('theme') ?? 'auto'
  } catch {
    return 'auto'
  }
}

function ThemeButton() {
  const [theme, setTheme] = useState(stored)
  useEffect(() => {
    document.documentElement.dataset.theme = theme
    try {
      localStorage.setItem('theme', theme)
    } catch {
      // Private windows keep nothing.
    }
  }, [theme])
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]
  return html`<button type="button" class="quiet" onClick=${() => setTheme(next)}>Theme: ${theme}</button>`
}

function App() {
  return html`
    <a class="skip" href="#main" onClick=${event => { event.preventDefault(); document.querySelector('main').focus() }}>Skip to the content</a>
    <header class="bar-top">
      <a class="brand" href="#/">winobench</a>
      <nav aria-label="Main"><a href="#/">Runs</a><a href=${link(['leaderboard'])}>Leaderboard</a></nav>
      <${ThemeButton} />
    </header>
    <main id="main" tabindex="-1"><${Page} /></main>`
}

render(html`<${App} />`, document.getElementById('app'))
