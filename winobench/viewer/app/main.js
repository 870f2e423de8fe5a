// The frame around the pages: the address chooses the page.

import { Component, html, link, pageKeys, render, useEffect, useRef, useState } from './base.js'

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

// A run has one more page.
const isKnown = ([page, ...parts]) => Object.hasOwn(PAGES, page) && parts.length <= PAGES[page][1].length && (page !== 'run' || ['', 'report'].includes(parts[1] ?? ''))

const THEMES = ['auto', 'light', 'dark']

function parsed(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s)
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
    return html`<h1>No page</h1><p class="problem" role="alert">This page cannot be shown: ${error.message}</p>`
  }
}

function Page({ parts, parameters }) {
  const [name, names] = isKnown(parts) ? PAGES[parts[0]] : []
  const [page, setPage] = useState({})
  const isFirst = useRef(true)
  useEffect(() => {
    if (!name) return
    import(`./pages/${name}.js`).then(
      module => setPage({ name, show: module.default }),
      () => setPage({ name, show: () => html`<h1>No page</h1><p class="problem" role="alert">The page could not be loaded: reload it.</p>` }),
    )
  }, [name])
  useEffect(() => {
    if (!isFirst.current) document.querySelector('main')?.focus({ preventScroll: true })
    isFirst.current = false
    scrollTo(0, 0)
  }, [parts.join('/')])
  if (!name) return html`<h1>No such page</h1><p class="problem" role="alert">This address has no page. <a href="#/">Show the runs.</a></p>`
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
  return html`<button type="button" class="quiet" title=${`Change to ${next}`} onClick=${() => setTheme(next)}>Theme: ${theme}</button>`
}

// The links that the keys j and k step through: the first one of each row, and those of lists that ask for it.
function step(by) {
  const stops = [...document.querySelectorAll('main tbody th a, main [data-step]')].filter(one => one.getClientRects().length)
  const row = document.activeElement?.closest('tr, [data-step]')
  const now = stops.findIndex(one => one === document.activeElement || row?.contains(one))
  const next = stops[now < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(stops.length - 1, Math.max(0, now + by))]
  next?.focus()
  next?.scrollIntoView({ block: 'nearest' })
}

const KEYS = {
  '/': { said: 'Write into the filter', act: () => document.querySelector('main input[type="search"]')?.focus() },
  j: { said: 'Next row', act: () => step(1) },
  k: { said: 'Previous row', act: () => step(-1) },
}

const NATIVE = [['Enter', 'Open the row'], ['Tab', 'Next link or button'], ['Escape', 'Leave the filter, or this list'], ['?', 'This list']]

const isTyping = element => element.closest('input:not([type="checkbox"], [type="radio"]), textarea, select, dialog') !== null

function KeyList() {
  const dialog = useRef()
  const [, setTurn] = useState(0)
  const open = () => {
    setTurn(turn => turn + 1)
    if (!dialog.current.open) dialog.current.showModal()
  }
  useEffect(() => {
    const pressed = event => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
      if (event.key === 'Escape' && event.target.matches('input')) event.target.blur()
      if (isTyping(event.target)) return
      const act = event.key === '?' ? open : (pageKeys.get(event.key) ?? KEYS[event.key])?.act
      if (!act) return
      event.preventDefault()
      act(event)
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
  const all = [...Object.entries({ ...KEYS, ...Object.fromEntries(pageKeys) }).map(([key, { said }]) => [key, said]).filter(([, said]) => said), ...NATIVE]
  return html`
    <button type="button" class="quiet" onClick=${open}>Keys</button>
    <dialog ref=${dialog} aria-labelledby="keys-title" onClick=${event => event.target === dialog.current && dialog.current.close()}>
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">${all.map(([key, said]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${said}</dd></div>`)}</dl>
      <button type="button" onClick=${() => dialog.current.close()}>Close</button>
    </dialog>`
}

const PLACES = [['', 'Runs'], ['leaderboard', 'Leaderboard']]

function App() {
  const { parts, parameters } = parsed(useHash())
  const skip = event => {
    event.preventDefault()
    document.querySelector('main').focus()
  }
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="bar-top">
      <a class="brand" href="#/">winobench</a>
      <nav aria-label="Main">${PLACES.map(([name, said]) => html`<a href=${link([name])} aria-current=${parts[0] === name ? 'page' : undefined}>${said}</a>`)}</nav>
      <span class="tools"><${KeyList} /><${ThemeButton} /></span>
    </header>
    <main id="main" tabindex="-1"><${Page} parts=${parts} parameters=${parameters} /></main>`
}

const root = document.getElementById('app')
root.replaceChildren()
render(html`<${App} />`, root)
