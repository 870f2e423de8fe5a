// Preact with htm, and small helpers that every page uses.

import { Component, Fragment, h, render } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import htm from 'htm'

export { count, number, percent, probability, words } from './wording.js'
export { Component, Fragment, render, useEffect, useMemo, useRef, useState }
export const html = htm.bind(h)

// The state of a promise: { value, error, loading }. The last value stays while a new one is computed.
export function useData(load, keys) {
  const [state, setState] = useState({ loading: true })
  useEffect(() => {
    let isCurrent = true
    setState(before => ({ value: before.value, loading: true }))
    Promise.resolve().then(load).then(
      value => isCurrent && setState({ value, loading: false }),
      error => isCurrent && setState({ error, loading: false }),
    )
    return () => { isCurrent = false }
  }, keys)
  return state
}

const AFTER_FAILURE = 5_000

// The content of a promise, asked for again after pace(value) milliseconds, where that is a number.
export function useLive(load, pace, keys) {
  const [state, setState] = useState({ loading: true })
  useEffect(() => {
    let timer
    let isCurrent = true
    const ask = async () => {
      let wait
      try {
        const value = document.hidden && wasAsked ? undefined : await load()
        if (!isCurrent) return
        if (value !== undefined) setState(before => (before.value === value && !before.error ? before : { value, loading: false }))
        last = value ?? last
        wait = pace(last)
      } catch (error) {
        if (!isCurrent) return
        setState(before => ({ value: before.value, error, loading: false }))
        wait = AFTER_FAILURE
      }
      wasAsked = true
      if (wait) timer = setTimeout(ask, wait)
    }
    let wasAsked = false
    let last
    setState({ loading: true })
    ask()
    return () => {
      isCurrent = false
      clearTimeout(timer)
    }
  }, keys)
  return state
}

// The content of a promise, or a sentence on what it waits for or why it failed.
export function Loaded({ state, what, children }) {
  if (state.error) return html`<p class="problem" role="alert">${state.error.message}</p>`
  if (state.value === undefined) return html`<p class="waiting" role="status">Loading ${what ?? ''}…</p>`
  return children(state.value)
}

// The address of a page. Parts are encoded, parameters follow where they have a value.
export function link(parts, parameters = {}) {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== '') query.set(name, value)
  }
  const parameterText = query.toString()
  return `#/${parts.map(encodeURIComponent).join('/')}${parameterText && '?' + parameterText}`
}

const WRITE_AFTER = 200

// The parameters of the page's address as a state: [values, change]. change(changes) writes some of them into the address.
export function useQuery(parts, parameters) {
  const [values, setValues] = useState(parameters)
  const timer = useRef()
  const written = useRef(JSON.stringify(parameters))
  const text = JSON.stringify(parameters)
  useEffect(() => {
    if (text === written.current) return
    written.current = text
    setValues(parameters)
  }, [text])
  useEffect(() => () => clearTimeout(timer.current), [])
  const change = changes => {
    const next = Object.fromEntries(Object.entries({ ...values, ...changes }).filter(([, value]) => value).map(([name, value]) => [name, String(value)]))
    setValues(next)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      written.current = JSON.stringify(next)
      location.replace(link(parts, next))
    }, WRITE_AFTER)
  }
  return [values, change]
}

// The title of the window.
export function useTitle(title) {
  useEffect(() => { document.title = title ? `${title} · winobench` : 'winobench' }, [title])
}

// Keys of the page that is shown: key -> { said, act }, or act alone. main.js listens to them.
export const pageKeys = new Map()

export function useKeys(own) {
  useEffect(() => {
    for (const [key, what] of Object.entries(own)) pageKeys.set(key, typeof what === 'function' ? { act: what } : what)
    return () => Object.keys(own).forEach(key => pageKeys.delete(key))
  })
}

const MOMENT = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' })
const DATED = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })
const A_DAY = 86_400_000

// A point in time as the reader's clock has it: the year where it is long ago.
export function Moment({ value }) {
  const moment = new Date(value ?? NaN)
  if (Number.isNaN(moment.valueOf())) return html`<span class="absent">–</span>`
  const isRecent = Math.abs(Date.now() - moment) < 200 * A_DAY
  return html`<time datetime=${value} title=${moment.toLocaleString('en-GB')}>${(isRecent ? MOMENT : DATED).format(moment)}</time>`
}
